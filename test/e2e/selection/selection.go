// Package selection chooses the end-to-end tests of a run. Core tests always run. The others (restarts, upgrades, outages, hostile cases)
// rotate: each belongs to one of three thirds. A run includes the tests of one third, and all tests of areas with changed files.
package selection

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Thirds is the number of shares of the rotated tests.
const Thirds = 3

// OnlyAreas selects no third, and no core test.
const OnlyAreas = -2

// A test runs always, or with one third.
const (
	core   = -1
	first  = 0
	second = 1
	third  = 2
)

// Groups of tests that share a cluster.
const (
	node    = "node"
	layouts = "layouts"
	nodes   = "nodes"
	profile = "profile"
	mps     = "mps"
)

// Area is a part of the product, or of the tests.
type Area struct {
	Name string
	// Paths are patterns of path.Match below the root of the repository: of files, or of folders with all their files.
	Paths []string
}

// Test is an end-to-end test.
type Test struct {
	Name string
	// Group is the cluster of the test.
	Group string
	// Third is core, or the third of the test.
	Third int
	// Areas are names of Areas.
	Areas []string
}

// Request selects the tests of a run.
type Request struct {
	// Full selects every test.
	Full bool
	// Third is the third to run, from 0; OnlyAreas runs only the areas that changed, without core tests of others.
	Third int
	// Changed lists the changed files, relative to the root of the repository.
	Changed []string
	// Unknown means that there is nothing to compare with, so that any file may have changed: then another third runs, too.
	Unknown bool
}

// Select returns the tests to run, in the order of the table.
func Select(r Request) []Test {
	changed := ChangedAreas(r.Changed)
	return slices.DeleteFunc(slices.Clone(Tests), func(t Test) bool {
		return !r.Full && !r.has(t) && !slices.ContainsFunc(t.Areas, func(area string) bool { return slices.Contains(changed, area) })
	})
}

// has reports whether the test runs regardless of changes.
func (r Request) has(t Test) bool {
	return r.Third != OnlyAreas && (t.Third == core || t.Third == r.Third || r.Unknown && t.Third == (r.Third+1)%Thirds)
}

// ChangedAreas returns the names of areas with a changed file.
func ChangedAreas(files []string) []string {
	var names []string
	for _, area := range Areas {
		if slices.ContainsFunc(files, area.covers) {
			names = append(names, area.Name)
		}
	}
	return names
}

// covers reports whether a pattern of the area matches the file or a parent folder.
func (a Area) covers(file string) bool {
	for ; file != "." && file != "/"; file = path.Dir(file) {
		for _, pattern := range a.Paths {
			if matched, err := path.Match(pattern, file); err == nil && matched {
				return true
			}
		}
	}
	return false
}

// ParseShare parses "i/3", the third to run, or "areas".
func ParseShare(share string) (int, error) {
	if share == "areas" {
		return OnlyAreas, nil
	}
	number, of, _ := strings.Cut(share, "/")
	i, err := strconv.Atoi(number)
	if err != nil || of != strconv.Itoa(Thirds) || i < 0 || i >= Thirds {
		return 0, fmt.Errorf("share %q: must be areas, or i/%d with an integer i from 0 to %d", share, Thirds, Thirds-1)
	}
	return i, nil
}

// ShareOf returns the share of a commit from the hash of its tree, so that a commit always gets the same tests.
func ShareOf(tree string) (int, error) {
	number, err := strconv.ParseUint(tree[:min(len(tree), 8)], 16, 32)
	if err != nil {
		return 0, fmt.Errorf("tree %q: must be the hash of a tree", tree)
	}
	return int(number % Thirds), nil
}

// Pattern returns a regular expression that matches exactly the names of these tests.
func Pattern(tests []Test) string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.Name
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// Groups divides tests by their groups, in the order in which the groups first appear.
func Groups(tests []Test) [][]Test {
	var groups [][]Test
	for _, t := range tests {
		i := slices.IndexFunc(groups, func(g []Test) bool { return g[0].Group == t.Group })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], t)
	}
	return groups
}
