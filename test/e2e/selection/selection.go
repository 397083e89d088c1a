// Package selection chooses the end-to-end tests of a run. Core tests always run. The others (restarts, upgrades, outages, hostile cases)
// rotate: each is in one of three thirds, a run has the tests of one third, and all tests of an area whose files changed.
package selection

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Thirds is how many shares the rotated tests are divided into.
const Thirds = 3

// OnlyAreas stands for no third, and no core test.
const OnlyAreas = -2

// A test is in every run, or in those of one third.
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
	// Paths are patterns of path.Match below the root of the repository: of files, or of folders with all that is in them.
	Paths []string
}

// Test is an end-to-end test.
type Test struct {
	Name string
	// Group is the cluster that the test runs on.
	Group string
	// Third is core, or the third that has the test.
	Third int
	// Areas are names of Areas.
	Areas []string
}

// Request says which tests a run needs.
type Request struct {
	// Full selects every test.
	Full bool
	// Third is the one whose tests run, from 0; OnlyAreas is for the areas that changed alone, without core tests of others.
	Third int
	// Changed are the files that changed, relative to the root of the repository.
	Changed []string
	// Unknown says that there is nothing to compare with, so that any file may have changed: another third runs then.
	Unknown bool
}

// Select returns the tests that run, in the order of the table.
func Select(r Request) []Test {
	changed := ChangedAreas(r.Changed)
	return slices.DeleteFunc(slices.Clone(Tests), func(t Test) bool {
		return !r.Full && !r.has(t) && !slices.ContainsFunc(t.Areas, func(area string) bool { return slices.Contains(changed, area) })
	})
}

// has reports whether the test runs whatever changed.
func (r Request) has(t Test) bool {
	return r.Third != OnlyAreas && (t.Third == core || t.Third == r.Third || r.Unknown && t.Third == (r.Third+1)%Thirds)
}

// ChangedAreas are the names of the areas of which a file changed.
func ChangedAreas(files []string) []string {
	var names []string
	for _, area := range Areas {
		if slices.ContainsFunc(files, area.covers) {
			names = append(names, area.Name)
		}
	}
	return names
}

// covers reports whether a pattern of the area matches the file or a folder that it is in.
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

// ParseShare reads "i/3", the third that a run has, or "areas".
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

// ShareOf is the share of a commit, as the hash of its tree says, so that a commit always has the same tests.
func ShareOf(tree string) (int, error) {
	number, err := strconv.ParseUint(tree[:min(len(tree), 8)], 16, 32)
	if err != nil {
		return 0, fmt.Errorf("tree %q: must be the hash of a tree", tree)
	}
	return int(number % Thirds), nil
}

// Pattern is a regular expression that matches the names of these tests and no others.
func Pattern(tests []Test) string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.Name
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// Groups divides tests by their groups, in the order in which the groups are first named.
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
