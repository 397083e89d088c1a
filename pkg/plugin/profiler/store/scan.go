package store

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// Scan processes new files in the inboxes and in the spool, once. Claims do not wait for each other's errors, which are passed to Failed.
// Limits are checked at the end, and while files are copied as often as without copies.
func (s *Store) Scan(ctx context.Context) {
	s.mu.Lock()
	uids := make([]string, 0, len(s.claims))
	for uid, c := range s.claims {
		if !c.rests() { // a node stores the reports of thousands of claims
			uids = append(uids, uid)
		}
	}
	s.mu.Unlock()
	counted := s.Now()
	for _, uid := range uids {
		if ctx.Err() != nil {
			return
		}
		count := func(taken int64) {
			if s.Now().Sub(counted) >= scanEvery {
				s.limit(pending{uid, taken})
				counted = s.Now()
			}
		}
		count(0)
		if err := s.scan(&copies{ctx: ctx, files: s.Files, part: count}, uid); err != nil && ctx.Err() == nil {
			s.Failed(uid, err)
		}
	}
	s.limit(pending{})
}

// scan processes the new files of one claim.
func (s *Store) scan(copying *copies, uid string) error {
	inboxes, err := s.inboxes(uid)
	if len(inboxes) == 0 {
		return err
	}
	defer closeInboxes(inboxes)
	copying.left, copying.lost, copying.notes = scanBytes, claimLost, s.notes(uid)
	for _, in := range inboxes {
		err = errors.Join(err, s.sessions(copying, uid, in))
	}
	s.remember(uid, copying.notes)
	s.absent(uid, inboxes)
	if flushErr := s.flush(uid); flushErr != nil {
		return errors.Join(err, flushErr) // sessions stay until they are in the index
	}
	empty := true
	for _, in := range inboxes {
		err = errors.Join(err, s.discardAll(in))
		empty = empty && len(in.names) == 0
	}
	copying.taken = 0
	err = errors.Join(err, s.collect(copying, uid))
	if err == nil && empty {
		s.rest(uid)
	}
	return err
}

// sessions processes the sessions of one inbox.
func (s *Store) sessions(copying *copies, uid string, in *inbox) (err error) {
	in.over, copying.cancelled = s.exited(uid, in.dir, in.names), nil
	for _, name := range in.names {
		if !sessionPattern.MatchString(name) {
			continue
		}
		done, sessionErr := s.session(copying, uid, in.dir, name)
		err = errors.Join(err, sessionErr)
		if done {
			in.over = append(in.over, name)
		}
	}
	in.cancelled = copying.cancelled
	return err
}

// rest excludes a claim with empty inboxes from scans if it is released, its reports are final, its spool is empty, because an importer may
// still be working for a deleted report, and prism-collector has no folder of it.
func (s *Store) rest(uid string) {
	if names, err := s.Files.List(s.path(uid, spoolDir)); err != nil || len(names) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[uid]; c != nil && c.Released {
		c.idle = !c.collector && !slices.ContainsFunc(c.Reports, func(r *report.Report) bool { return !r.State.Final() })
	}
}

// session processes one session, and returns whether it may be discarded once the index is written.
func (s *Store) session(copying *copies, uid string, inbox *os.File, name string) (done bool, err error) {
	s.mu.Lock()
	c := s.claims[uid]
	if c == nil {
		s.mu.Unlock()
		return false, nil
	}
	id, claim, released := ReportID(uid, name), c.Claim, c.Released
	known := c.report(id)
	room := known != nil || s.roomFor(copying, c)
	before := report.Report{}
	if known != nil {
		before = *known
	}
	s.mu.Unlock()
	if known != nil && before.State != report.Recording {
		return true, nil // a kill between the index and the discard
	}
	if !room {
		return false, nil // the next scan continues, or limit stops the claim
	}
	dir, err := untrusted.Folder(inbox, name)
	if err != nil {
		return false, nil // removed, or not a folder: a container may put anything there
	}
	defer dir.Close()
	r := s.begun(claim, id, before.Started)
	said, is := s.note(copying, dir, id, released)
	if said.cancelled() {
		s.dropReport(uid, id)
		copying.cancelled = append(copying.cancelled, name)
		return false, nil
	}
	if is == unread {
		return false, nil
	}
	said.fill(&r, &claim, s.Now())
	if is == live {
		copying.put(s, r, known == nil)
		return false, nil
	}
	if r.Ended == nil {
		ended := s.Now().UTC()
		r.Ended = &ended
	}
	if copying.left <= 0 || copying.lost <= 0 {
		return false, nil // the next scan continues
	}
	if err := s.sync(uid); err != nil {
		return false, err
	}
	return s.takeOver(copying, dir, r, said, known == nil)
}

// begun returns a report of a claim before its note is read; started is zero if the report is new.
func (s *Store) begun(claim Claim, id string, started time.Time) report.Report {
	if started.IsZero() {
		started = s.Now().UTC()
	}
	return report.Report{
		ID: id, Namespace: claim.Namespace, Claim: claim.Name, ClaimUID: claim.UID, Node: claim.Node, Tool: claim.Tool, State: report.Recording,
		Started: started,
	}
}

// absent ends sessions whose folder a container removed from its inbox.
func (s *Store) absent(uid string, inboxes []*inbox) {
	there := map[string]bool{}
	for _, in := range inboxes {
		if in.more {
			return // the others were not read
		}
		for _, name := range in.names {
			there[ReportID(uid, name)] = true
		}
	}
	for _, r := range s.reports(uid) {
		if r.State == report.Recording && !there[r.ID] {
			ended := s.Now().UTC()
			r.State, r.Ended = report.Lost, &ended
			if r.Reason == "" {
				r.Reason = "SessionRemoved"
			}
			s.put(r)
		}
	}
}

// ReportID returns an id that is unique on all nodes, and a DNS label.
func ReportID(uid, session string) string { return uid[:min(len(uid), 8)] + "-" + session }

// put adds or updates a report, and counts it.
func (c *copies) put(s *Store, r report.Report, first bool) {
	if first {
		c.reports--
	}
	if r.State == report.Lost {
		c.lost--
	}
	c.taken += size(&r)
	s.put(r)
}

// put adds or updates a report, if it has changed; flush writes it.
func (s *Store) put(r report.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[r.ClaimUID]
	if c == nil {
		return
	}
	known := c.report(r.ID)
	if known != nil {
		r.UID = known.UID
	}
	if known != nil && same(*known, r) {
		return
	}
	c.changed = true
	if known == nil {
		r.UID = rand.Text()
		c.Reports = append(c.Reports, &r)
		s.Changed(r)
		return
	}
	news := known.State != r.State || known.Reason != r.Reason
	*known = r
	if news {
		s.Changed(r)
	}
}

func same(a, b report.Report) bool {
	if (a.Ended == nil) != (b.Ended == nil) || (a.Ended != nil && !a.Ended.Equal(*b.Ended)) || !a.Started.Equal(b.Started) {
		return false
	}
	a.Ended, a.Started = b.Ended, b.Started
	return a == b
}

// discardAll removes the folders of an inbox that are processed.
func (s *Store) discardAll(in *inbox) error {
	folders, err := s.withoutReports(in)
	for _, name := range folders {
		err = errors.Join(err, s.discard(in, name))
	}
	return err
}

// discard removes the folder of a processed session. It empties the files first: otherwise files that a process still has open would take
// uncounted space.
func (s *Store) discard(in *inbox, session string) error {
	if dir, err := untrusted.Folder(in.dir, session); err == nil {
		err = disk.Empty(dir, emptyEntries, s.truncate)
		_ = dir.Close()
		if errors.Is(err, disk.ErrManyEntries) {
			return nil // the next scan continues
		}
	}
	return s.removeDir(filepath.Join(in.path, session))
}
