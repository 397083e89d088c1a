package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// grace is the time for processes to end their recording once the store is full.
const grace = 10 * time.Second

// emptyEntries is the number of entries of an inbox or of a session that a scan removes.
const emptyEntries = 10 * maxEntries

// use is the space that a claim occupies.
type use struct {
	uid, namespace string
	// own are the bytes of its reports and of its inboxes, inbox the bytes that were written to these and that were not taken over.
	own   space
	inbox int64
	// collector is as in index.
	collector bool
	// reports is the number of its reports.
	reports int
	// crowded: there are too many files or sessions, regardless of their size; littered are inboxes that because of them are not read to their
	// end.
	crowded  bool
	littered []string
	recording
}

// recording is the state of a claim's recording.
type recording struct {
	stopped *time.Time
	emptied bool
	// rests: only its reports take space, and nothing is recorded.
	rests bool
}

// namespaces is the number of parts of the node's limit: a namespace may use at most one of them.
const namespaces = 2

// limit stops the recording of claims above their limit. If a namespace or the node is above its limit, it stops one of its claims. Files
// that stopped claims still write are truncated after the grace. Recording resumes once there is room.
func (s *Store) limit(of pending) {
	uses := s.relieved(of)
	all, by := s.spaces(uses)
	largest := map[string]use{} // by namespace, and "" for the node
	for _, u := range uses {
		if u.rests {
			continue
		}
		share := by[u.namespace]
		s.failed(u.uid, s.syncStopFile(u))
		switch roomy := !u.crowded && u.own.room() && share.room() && all.room(); {
		case u.stopped != nil && roomy:
			// The contents of the inbox stay: they may be a report that could not be stored yet.
			if s.since(u.stopped) >= 2*grace {
				s.failed(u.uid, s.resume(u))
			}
		case u.stopped != nil || u.crowded || u.own.over():
			s.failed(u.uid, s.stop(u))
		case share.over():
			largest[u.namespace] = larger(u, largest[u.namespace])
		case all.over():
			largest[""] = larger(u, largest[""])
		}
	}
	for _, u := range largest {
		s.failed(u.uid, s.stop(u))
	}
}

// spaces returns the space that the node and its namespaces occupy.
func (s *Store) spaces(uses []use) (all space, by map[string]space) {
	all, by = space{limit: s.NodeBytes}, map[string]space{}
	for _, u := range uses {
		all.taken += u.own.taken
		by[u.namespace] = space{by[u.namespace].taken + u.own.taken, s.NodeBytes / namespaces}
	}
	return all, by
}

// larger returns the claim with the larger inbox, or the first if both are equal.
func larger(one, other use) use {
	if other.uid == "" || one.inbox >= other.inbox {
		return one
	}
	return other
}

// space is the number of occupied bytes of a limit; 0 is unlimited.
type space struct{ taken, limit int64 }

func (s space) over() bool { return s.limit > 0 && s.taken > s.limit }

// room reports whether enough space is free to resume recording: a tenth, otherwise a claim would stop and start with each scan.
func (s space) room() bool { return s.limit <= 0 || s.taken <= s.limit-s.limit/10 }

func (s *Store) failed(uid string, err error) {
	if err != nil {
		s.Failed(uid, err)
	}
}

// pending is the data that was taken from the inbox of a claim and is still in it: it counts once, as a report.
type pending struct {
	uid   string
	bytes int64
}

// uses measures all claims.
func (s *Store) uses(of pending) (uses []use) {
	s.mu.Lock()
	dropFileless(s.claims)
	reports := s.counted()
	for uid, c := range s.claims {
		uses = append(uses, use{
			uid: uid, namespace: c.Claim.Namespace, own: space{c.bytes(), c.Claim.MaxBytes}, reports: len(c.Reports),
			collector: c.collector, crowded: !c.Released && reports.left(c) <= 0, recording: recording{c.Stopped, c.Truncated, c.rests()},
		})
	}
	s.mu.Unlock()
	for i := range uses {
		u := &uses[i]
		if u.rests {
			continue
		}
		s.measure(u)
		if u.uid == of.uid {
			u.inbox -= min(u.inbox, of.bytes)
		}
		u.own.taken += u.inbox
		s.measured(u.uid, u.inbox)
	}
	return uses
}

// measure measures the inboxes of a claim.
func (s *Store) measure(u *use) {
	for _, of := range s.allFolders(u.uid, u.collector) {
		if inbox, err := untrusted.Open(of.Inbox); err == nil {
			bytes, crowded := usage(inbox)
			_ = inbox.Close()
			u.inbox += bytes
			if crowded {
				u.crowded, u.littered = true, append(u.littered, of.Inbox)
			}
		}
	}
}

// stop ends the recording of a claim; when it is called again after the grace, it empties the inboxes.
func (s *Store) stop(u use) error {
	if u.stopped == nil {
		now := s.Now().UTC()
		var err error
		for _, of := range s.allFolders(u.uid, u.collector) {
			err = errors.Join(err, s.writeStop(of))
		}
		err = errors.Join(err, s.update(u.uid, func(c *index) { c.Stopped = &now }))
		s.Changed(report.Report{ClaimUID: u.uid})
		return err
	}
	if s.since(u.stopped) < grace || u.inbox == 0 {
		return nil
	}
	var err error
	folders := s.allFolders(u.uid, u.collector)
	for _, of := range folders {
		err = errors.Join(err, s.empty(of.Inbox, slices.Contains(u.littered, of.Inbox), u.own.limit/waitingPart/int64(len(folders))))
	}
	if err != nil || u.emptied { // according to the index
		return err
	}
	return s.update(u.uid, func(c *index) {
		for _, r := range c.Reports {
			if r.State == report.Recording {
				r.Reason = reasonFull
			}
		}
		c.Truncated = true
	})
}

// since returns the time since a claim was stopped. A time in the future counts as equally long ago, because the clock was set back.
func (s *Store) since(stopped *time.Time) time.Duration { return s.Now().Sub(*stopped).Abs() }

// resume lets processes of a claim that start from now on be recorded again.
func (s *Store) resume(u use) error {
	for _, of := range s.allFolders(u.uid, u.collector) {
		if err := s.Files.Remove(filepath.Join(of.Plan, stopFile)); err != nil {
			return err
		}
	}
	err := s.update(u.uid, func(c *index) { c.Stopped, c.Truncated = nil, false })
	s.Changed(report.Report{ClaimUID: u.uid})
	return err
}

// syncStopFile creates the files that stop processes if recording is stopped, and otherwise removes them, because a kill or a full disk may
// have prevented that.
func (s *Store) syncStopFile(u use) (err error) {
	for _, of := range s.allFolders(u.uid, u.collector) {
		path := filepath.Join(of.Plan, stopFile)
		_, statErr := os.Lstat(path)
		switch there := statErr == nil; {
		case there && u.stopped == nil:
			err = errors.Join(err, s.Files.Remove(path))
		case !there && u.stopped != nil:
			err = errors.Join(err, s.writeStop(of))
		}
	}
	return err
}

func (s *Store) writeStop(of Folders) error {
	return disk.Replace(s.Files, filepath.Join(of.Plan, stopFile), []byte(reasonFull+"\n"), 0o644, false)
}

// measured stores the measured size of the inboxes of a claim.
func (s *Store) measured(uid string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[uid]; c != nil {
		c.inbox = bytes
	}
}
