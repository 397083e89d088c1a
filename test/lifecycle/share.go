package lifecycle

import (
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"
)

// families maps each family of scenarios to its folders. After a change in one of them, more points of the family are tried.
var families = map[string][]string{
	"whole":     {"pkg/plugin/cdi", "pkg/checkpoint", "pkg/claim", "pkg/disk", "pkg/plugin/driver", "pkg/plugin/inventory", "pkg/plugin/prepare", "pkg/plugin/reconcile"},
	"mig":       {"pkg/plugin/mig"},
	"timeslice": {"pkg/plugin/timeslice", "pkg/plugin/nvsmi"},
	"metrics":   {"pkg/exporter/metrics", "pkg/plugin/claimmetrics"},
	"profile":   {"pkg/plugin/profiler", "pkg/profiler"},
	"layout":    {"pkg/plugin/layout", "pkg/nodeconfig", "pkg/plugin/publish"},
	"mps":       {"pkg/plugin/mps", "pkg/mpsd"},
	"health":    {"pkg/plugin/health", "pkg/plugin/maintenance", "pkg/maintenance", "pkg/plugin/publish"},
}

// changedShares is the number of shares of a family's points if a commit changes its folders.
const changedShares = 2

// share is the part of the points that a run tries: Index of Of parts.
type share struct{ Index, Of int }

// everything is the share of a run that tries all points.
var everything = share{Index: 0, Of: 1}

func (s share) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Of) }

// parseShare reads "i/n", 0 ≤ i < n; empty is everything.
func parseShare(text string) (share, error) {
	if text == "" {
		return everything, nil
	}
	index, of, _ := strings.Cut(text, "/")
	i, iErr := strconv.Atoi(index)
	n, nErr := strconv.Atoi(of)
	if iErr != nil || nErr != nil || i < 0 || i >= n {
		return share{}, fmt.Errorf("share %q: must be i/n with 0 <= i < n", text)
	}
	return share{Index: i, Of: n}, nil
}

// familyShare returns the share of a family's points: LIFECYCLE_SHARE, or one of fewer parts if one of the changed files is in a folder of
// the family. LIFECYCLE_CHANGED is a file with the paths of the changed files; without it every file may have changed.
func familyShare(family string) (share, error) {
	part, err := parseShare(os.Getenv("LIFECYCLE_SHARE"))
	if err != nil || part.Of <= changedShares {
		return part, err
	}
	changed := true
	if list := os.Getenv("LIFECYCLE_CHANGED"); list != "" {
		text, err := os.ReadFile(list)
		if err != nil {
			return share{}, fmt.Errorf("LIFECYCLE_CHANGED: %w", err)
		}
		changed = isChanged(strings.Fields(string(text)), family)
	}
	if changed {
		part = share{Index: part.Index % changedShares, Of: changedShares}
	}
	return part, nil
}

// isChanged reports whether one of the files is in a folder of the family.
func isChanged(files []string, family string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		return slices.ContainsFunc(families[family], func(dir string) bool { return strings.HasPrefix(file, dir+"/") })
	})
}

// stratum is all points at one site in one act, which a change of the code more often breaks together: each share has at least one of them.
type stratum struct {
	Act  int
	Site string
}

// choose returns which of the points belong to the share: points whose hash falls into it, and one of each stratum without such a point. A
// point is identified by scenario and index, so that all shares of one state of the code divide the same points.
func (s share) choose(scenario string, strata []stratum) []bool {
	chosen, has, members := make([]bool, len(strata)), map[stratum]bool{}, map[stratum][]int{}
	for i, at := range strata {
		members[at] = append(members[at], i)
		if s.owns(fmt.Sprint(scenario, i)) {
			chosen[i], has[at] = true, true
		}
	}
	for at, of := range members {
		if !has[at] {
			chosen[of[(hashOf(fmt.Sprint(scenario, at))+uint64(s.Index))%uint64(len(of))]] = true
		}
	}
	return chosen
}

func (s share) owns(point string) bool { return hashOf(point)%uint64(s.Of) == uint64(s.Index) }

func hashOf(text string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(text)) // a hash accepts all data
	// The low bits of FNV of short texts are not well mixed.
	h := sum.Sum64()
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}
