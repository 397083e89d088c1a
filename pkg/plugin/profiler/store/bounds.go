package store

import (
	"cmp"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// Every report takes memory and a place in an index, even without a file, and containers can create any number.
const (
	// claimReports is the maximum number of reports of a claim, nodeReports of all claims together; a namespace is limited to its part of
	// them.
	claimReports, nodeReports = 1024, 8192
	// claimLost is the maximum number of Lost reports of a claim, and the maximum that one scan adds.
	claimLost = 64
	// namespaceFileless and nodeFileless are the maximum numbers of reports without a file on the node: they are Lost, or stay in their
	// container.
	namespaceFileless, nodeFileless = 1000, 4000
)

// fileless reports whether a report is complete and takes no byte of the node.
func fileless(r *report.Report) bool { return r.State.Final() && r.SHA256 == "" }

// age returns the end of a report, by which reports are compared.
func age(r *report.Report) time.Time {
	if r.Ended == nil {
		return r.Started
	}
	return *r.Ended
}

func byAge(a, b *report.Report) int { return age(a).Compare(age(b)) }

// expired reports whether the retention of a report has passed.
func (c *index) expired(r *report.Report, now time.Time) bool {
	return c.Claim.Retention > 0 && r.State.Final() && (r.Ended == nil || r.Ended.Before(now.Add(-c.Claim.Retention))) && !c.partial(r)
}

// drop removes reports without a file from an index. The index need not be written: a process that reads it drops them again.
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

// dropLost drops the oldest Lost reports of a claim above the limit.
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

// compact drops reports without a file that a claim no longer keeps, while its index is read. The next sweep removes files.
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

// filelessOf is a report without a file, and its index.
type filelessOf struct {
	*report.Report
	index *index
}

// dropFileless drops the oldest reports without a file of namespaces above their limit, Lost ones first. If the node is above its limit,
// the namespaces with the most reports make room.
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

// worth is lower for reports that only explain why there is no report.
func worth(r *report.Report) int {
	if r.State == report.Lost {
		return 0
	}
	return 1
}

// level returns the maximum for each of some uses such that their sum is within a limit: uses below it are not reduced.
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

// counts are numbers of reports.
type counts struct {
	node int
	by   map[string]int // by namespace, including namespaces without reports
}

// counted counts the reports of all claims. Hold the lock.
func (s *Store) counted() counts {
	n := counts{by: map[string]int{}}
	for _, c := range s.claims {
		n.node += len(c.Reports)
		n.by[c.Claim.Namespace] += len(c.Reports)
	}
	return n
}

// left returns the number of reports that a claim may add. A namespace below its share has room regardless of the others' reports.
func (n counts) left(c *index) int {
	has := n.by[c.Claim.Namespace]
	fair := nodeReports/max(len(n.by), namespaces) - has
	return min(claimReports-len(c.Reports), max(min(nodeReports/namespaces-has, nodeReports-n.node), fair))
}

// roomFor reports whether a scan of a claim may add one more session. It counts reports only for a new session, which most scans do not
// find. Hold the lock.
func (s *Store) roomFor(copying *copies, c *index) bool {
	if !copying.counted {
		copying.reports, copying.counted = s.counted().left(c), true
	}
	return copying.reports > 0 && copying.lost > 0
}
