package store

import (
	"errors"
	"slices"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// tally contains the namespaces' use of a limited resource of a node: bytes, or reports. A limit of 0 is unlimited.
type tally struct {
	limit, all int64
	by         map[string]int64 // by namespace, including namespaces with a claim and no use
}

func (t *tally) add(namespace string, n int64) {
	t.all += n
	t.by[namespace] += n
}

// fair returns the share of each namespace, regardless of the demand of others.
func (t *tally) fair() int64 { return t.limit / max(int64(len(t.by)), namespaces) }

// missing returns the amount to free until recordings may start again.
func (t *tally) missing() int64 {
	if t.limit <= 0 {
		return 0
	}
	return t.all - (t.limit - t.limit/10)
}

// evictions contains a tally that requires evictions, and the amount of a report.
type evictions struct {
	tally
	missing int64
	of      func(*report.Report) int64
}

// size returns the number of bytes of a report on the node: none if it stays in its container.
func size(r *report.Report) int64 {
	if r.SHA256 == "" {
		return 0
	}
	return r.Size
}

func one(*report.Report) int64 { return 1 }

// relieved measures all claims, and again after evictions.
func (s *Store) relieved(of pending) []use {
	uses := s.uses(of)
	if s.relieve(uses) {
		return s.uses(of)
	}
	return uses
}

// relieve evicts reports if a namespace below its fair share needs room and the node is full. It reports whether it did.
func (s *Store) relieve(uses []use) (evicted bool) {
	bytes := evictions{tally: tally{limit: s.NodeBytes, by: map[string]int64{}}, of: size}
	count := evictions{tally: tally{limit: nodeReports, by: map[string]int64{}}, of: one}
	wanting := map[string]bool{}
	for _, u := range uses {
		bytes.add(u.namespace, u.own.taken)
		count.add(u.namespace, int64(u.reports))
		if !u.rests && (u.stopped != nil || u.inbox > 0) {
			wanting[u.namespace] = true
		}
	}
	for _, e := range []*evictions{&bytes, &count} {
		for namespace := range wanting {
			if e.missing = e.tally.missing(); e.missing > 0 && e.by[namespace] < e.fair() {
				evicted = s.evict(e) || evicted
				break
			}
		}
	}
	return evicted
}

// makeRoom evicts reports for a file, if its namespace then stays within its fair share and its claim within its limit.
func (s *Store) makeRoom(r *report.Report, file int64) {
	e := evictions{tally: tally{limit: s.NodeBytes, by: map[string]int64{}}, of: size}
	s.mu.Lock()
	own := s.claims[r.ClaimUID]
	for _, c := range s.claims {
		e.add(c.Claim.Namespace, c.bytes())
	}
	s.mu.Unlock()
	more := file - r.Size
	e.missing = e.all + more - e.limit
	if own == nil || e.limit <= 0 || e.missing <= 0 || e.by[r.Namespace]+more > e.fair() ||
		own.Claim.MaxBytes > 0 && own.bytes()+more > own.Claim.MaxBytes {
		return
	}
	s.evict(&e)
}

// evict repeatedly removes the oldest reports of the namespace with the most, while room is missing and a namespace exceeds its fair share.
func (s *Store) evict(e *evictions) (evicted bool) {
	for uid, victims := range s.victims(e) {
		gone, err := s.cutVictims(uid, victims)
		s.failed(uid, errors.Join(err, s.free(uid, gone)))
		for _, r := range gone {
			s.Evicted(*r)
		}
		evicted = evicted || len(gone) > 0
	}
	return evicted
}

func (s *Store) cutVictims(uid string, victims []*report.Report) ([]*report.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return nil, nil
	}
	return s.cut(c, func(r *report.Report) bool { return slices.Contains(victims, r) })
}

// victims chooses reports, by claim.
func (s *Store) victims(e *evictions) map[string][]*report.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := map[string][]*report.Report{} // by namespace, the oldest first
	for _, c := range s.claims {
		for _, r := range c.Reports {
			if r.State.Final() && r.SHA256 != "" && e.by[c.Claim.Namespace] > e.fair() && !c.partial(r) {
				stored[c.Claim.Namespace] = append(stored[c.Claim.Namespace], r)
			}
		}
	}
	for _, all := range stored {
		slices.SortStableFunc(all, byAge)
	}
	chosen := map[string][]*report.Report{}
	for e.missing > 0 {
		most := ""
		for namespace, all := range stored {
			if len(all) > 0 && e.by[namespace] > e.fair() && (most == "" || e.by[namespace] > e.by[most]) {
				most = namespace
			}
		}
		if most == "" {
			break
		}
		r := stored[most][0]
		stored[most] = stored[most][1:]
		chosen[r.ClaimUID] = append(chosen[r.ClaimUID], r)
		e.missing -= e.of(r)
		e.by[most] -= e.of(r)
	}
	return chosen
}
