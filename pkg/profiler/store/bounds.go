package store

import (
	"cmp"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// A report takes memory and a place in an index whether or not it has a file, and containers make as many as they like.
const (
	// claimReports is how many reports a claim has, nodeReports all claims together; those of a namespace are at most its part of them.
	claimReports, nodeReports = 1024, 8192
	// claimLost is how many reports a claim keeps that are Lost. So many more are taken over in a scan, at most.
	claimLost = 64
	// namespaceFileless and nodeFileless are how many reports are kept that have no file on the node: they are Lost, or stay in their container.
	namespaceFileless, nodeFileless = 1000, 4000
)

// fileless says that a report is complete and takes no byte of the node.
func fileless(r *report.Report) bool { return r.State.Final() && r.SHA256 == "" }

// age is what reports are compared by: when they ended.
func age(r *report.Report) time.Time {
	if r.Ended == nil {
		return r.Started
	}
	return *r.Ended
}

func byAge(a, b *report.Report) int { return age(a).Compare(age(b)) }

// expired says that the retention of a report has passed.
func (c *index) expired(r *report.Report, now time.Time) bool {
	return c.Claim.Retention > 0 && r.State.Final() && (r.Ended == nil || r.Ended.Before(now.Add(-c.Claim.Retention))) && !c.partial(r)
}

// drop takes reports without a file out of an index, which need not be written for that: the process that reads it drops them again.
func (c *index) drop(reports []*report.Report) {
	if len(reports) == 0 {
		return
	}
	gone := make(map[*report.Report]bool, len(reports))
	for _, r := range reports {
		gone[r] = true
	}
	c.Reports = slices.DeleteFunc(c.Reports, func(r *report.Report) bool { return gone[r] })
}

// dropLost drops the oldest reports of a claim that are Lost, if they are too many.
func (c *index) dropLost() []*report.Report {
	var lost []*report.Report
	for _, r := range c.Reports {
		if r.State == report.Lost && !c.partial(r) {
			lost = append(lost, r)
		}
	}
	if len(lost) <= claimLost {
		return nil
	}
	slices.SortStableFunc(lost, byAge)
	lost = lost[:len(lost)-claimLost]
	c.drop(lost)
	c.Dropped += len(lost)
	return lost
}

// compact drops what a claim that is being read no longer keeps and has no file. Files are removed by the next sweep.
func (c *index) compact(now time.Time) {
	var gone []*report.Report
	for _, r := range c.Reports {
		if fileless(r) && c.expired(r, now) {
			gone = append(gone, r)
		}
	}
	c.drop(gone)
	c.dropLost()
}

// filelessOf is a report without a file, and the index that has it.
type filelessOf struct {
	*report.Report
	index *index
}

// dropFileless drops the oldest reports without a file of namespaces that have too many, those that are Lost first. Of all namespaces the
// ones with the most reports make room on the node.
func dropFileless(claims map[string]*index) {
	by, uses := map[string][]filelessOf{}, []int{}
	for _, c := range claims {
		for _, r := range c.Reports {
			if fileless(r) && !c.partial(r) {
				by[c.Claim.Namespace] = append(by[c.Claim.Namespace], filelessOf{r, c})
			}
		}
	}
	for _, all := range by {
		uses = append(uses, len(all))
	}
	most := min(level(uses, nodeFileless), namespaceFileless)
	for _, all := range by {
		if len(all) <= most {
			continue
		}
		slices.SortStableFunc(all, func(a, b filelessOf) int { return cmp.Or(worth(a.Report)-worth(b.Report), byAge(a.Report, b.Report)) })
		gone := map[*index][]*report.Report{}
		for _, one := range all[:len(all)-most] {
			gone[one.index] = append(gone[one.index], one.Report)
		}
		for c, reports := range gone {
			c.drop(reports)
			c.Dropped += len(reports)
		}
	}
}

// worth is less of reports that say only why there is nothing.
func worth(r *report.Report) int {
	if r.State == report.Lost {
		return 0
	}
	return 1
}

// level is the most that each of some uses may be so that all together are within a limit: those below it are not touched.
func level(uses []int, limit int) int {
	left := limit
	for i, use := range slices.Sorted(slices.Values(uses)) {
		share := left / (len(uses) - i)
		if use > share {
			return share
		}
		left -= use
	}
	return limit
}

// counts are how many reports there are.
type counts struct {
	node int
	by   map[string]int // by namespace, also of those that have none yet
}

// counted counts the reports of all claims. The lock is held.
func (s *Store) counted() counts {
	n := counts{by: map[string]int{}}
	for _, c := range s.claims {
		n.node += len(c.Reports)
		n.by[c.Claim.Namespace] += len(c.Reports)
	}
	return n
}

// left is how many reports a claim may have more. A namespace below its share has room however many reports the others have.
func (n counts) left(c *index) int {
	has := n.by[c.Claim.Namespace]
	fair := nodeReports/max(len(n.by), namespaces) - has
	return min(claimReports-len(c.Reports), max(min(nodeReports/namespaces-has, nodeReports-n.node), fair))
}

// roomFor reports whether a scan of a claim takes over one more session. Reports are counted when there is a new one: most scans find none. The
// lock is held.
func (s *Store) roomFor(copying *copies, c *index) bool {
	if !copying.counted {
		copying.reports, copying.counted = s.counted().left(c), true
	}
	return copying.reports > 0 && copying.lost > 0
}
