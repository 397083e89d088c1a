package store

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// grace is how long processes have to end their recording once the store is full.
const grace = 10 * time.Second

// emptyEntries is how many entries of an inbox or of a session are removed in a scan.
const emptyEntries = 10 * maxEntries

// use is what a claim takes.
type use struct {
	uid, namespace string
	// own are the bytes of its reports and of its inbox, inbox those that its containers have written and nothing has taken over.
	own   space
	inbox int64
	// reports is how many it has.
	reports int
	// crowded says that it has too many files or sessions, whatever their size; littered that its inbox is not read to its end for them.
	crowded, littered bool
	recording
}

// recording is whether a claim is recorded.
type recording struct {
	stopped *time.Time
	emptied bool
	// rests says that only its reports take space, and nothing is recorded.
	rests bool
}

// namespaces is into how many parts the limit of the node is divided: a namespace has at most one of them.
const namespaces = 2

// limit stops the recording of claims that are over their limit, and of one of a namespace, or of the node, that is over its own. What they
// still write is truncated after the grace. Where there is room again they are recorded again.
func (s *Store) limit(of pending) {
	uses := s.relieved(of)
	all, by := s.spaces(uses)
	largest := map[string]use{} // by namespace, and "" of the node
	for _, u := range uses {
		if u.rests {
			continue
		}
		share := by[u.namespace]
		s.failed(u.uid, s.sign(u))
		switch roomy := !u.crowded && u.own.room() && share.room() && all.room(); {
		case u.stopped != nil && roomy:
			// What the inbox has stays: it may be a report that could not be stored yet.
			if s.since(u.stopped) >= 2*grace {
				s.failed(u.uid, s.resume(u.uid))
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

// spaces are what the node and its namespaces take.
func (s *Store) spaces(uses []use) (all space, by map[string]space) {
	all, by = space{limit: s.NodeBytes}, map[string]space{}
	for _, u := range uses {
		all.taken += u.own.taken
		by[u.namespace] = space{by[u.namespace].taken + u.own.taken, s.NodeBytes / namespaces}
	}
	return all, by
}

// larger is the claim with the larger inbox, the first one where both are alike.
func larger(one, other use) use {
	if other.uid == "" || one.inbox >= other.inbox {
		return one
	}
	return other
}

// space is how many bytes are taken of a limit; 0 is none.
type space struct{ taken, limit int64 }

func (s space) over() bool { return s.limit > 0 && s.taken > s.limit }

// room says that so much is free that recording may begin again: a tenth, or a claim would stop and start with each scan.
func (s space) room() bool { return s.limit <= 0 || s.taken <= s.limit-s.limit/10 }

func (s *Store) failed(uid string, err error) {
	if err != nil {
		s.Failed(uid, err)
	}
}

// pending is what was taken out of the inbox of a claim and is still in it: it takes space once, as a report.
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
			crowded: !c.Released && reports.left(c) <= 0, recording: recording{c.Stopped, c.Truncated, c.rests()},
		})
	}
	s.mu.Unlock()
	for i := range uses {
		u := &uses[i]
		if u.rests {
			continue
		}
		if inbox, err := openDir(s.path(u.uid, inboxDir)); err == nil {
			bytes, crowded := usage(inbox)
			if u.uid == of.uid {
				bytes -= min(bytes, of.bytes)
			}
			u.inbox, u.own.taken, u.crowded, u.littered = bytes, u.own.taken+bytes, u.crowded || crowded, crowded
			_ = inbox.Close()
			s.measured(u.uid, bytes)
		}
	}
	return uses
}

// stop ends the recording of a claim; again after the grace, it empties the inbox.
func (s *Store) stop(u use) error {
	if u.stopped == nil {
		now := s.Now().UTC()
		err := s.writeStop(u.uid)
		err = errors.Join(err, s.update(u.uid, func(c *index) { c.Stopped = &now }))
		s.Changed(report.Report{ClaimUID: u.uid})
		return err
	}
	if s.since(u.stopped) < grace || u.inbox == 0 {
		return nil
	}
	inbox, err := openDir(s.path(u.uid, inboxDir))
	if err != nil {
		return err
	}
	defer inbox.Close()
	if u.littered {
		// What is beyond the entries that are read cannot be emptied one by one.
		if err := disk.Empty(inbox, emptyEntries, s.truncate); err != nil && !errors.Is(err, disk.ErrManyEntries) {
			return err
		}
	} else {
		left := maxEntries
		walk(inbox, 0, &left, func(dir *os.File, name string, _ *unix.Stat_t) { s.truncate(dir, name) })
	}
	if u.emptied {
		return nil // the index says so
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

// since is how long ago a claim was stopped. A time in the future is as long ago: the clock was set back since.
func (s *Store) since(stopped *time.Time) time.Duration { return s.Now().Sub(*stopped).Abs() }

// resume has processes of a claim recorded again that start from now on.
func (s *Store) resume(uid string) error {
	if err := s.Files.Remove(s.path(uid, planDir, stopFile)); err != nil {
		return err
	}
	err := s.update(uid, func(c *index) { c.Stopped, c.Truncated = nil, false })
	s.Changed(report.Report{ClaimUID: uid})
	return err
}

// sign has the file that stops processes where recording is stopped, and nowhere else: a kill or a full disk may have come between them.
func (s *Store) sign(u use) error {
	_, err := os.Lstat(s.path(u.uid, planDir, stopFile))
	switch there := err == nil; {
	case there && u.stopped == nil:
		return s.Files.Remove(s.path(u.uid, planDir, stopFile))
	case !there && u.stopped != nil:
		return s.writeStop(u.uid)
	}
	return nil
}

func (s *Store) writeStop(uid string) error {
	return disk.Replace(s.Files, s.path(uid, planDir, stopFile), []byte(reasonFull+"\n"), 0o644, false)
}

// measured remembers what an inbox takes.
func (s *Store) measured(uid string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[uid]; c != nil {
		c.inbox = bytes
	}
}

// truncate empties a file, also one that a process has open. Notes stay, and other kinds of files take no space.
func (s *Store) truncate(dir *os.File, name string) {
	f, st, err := within(dir, name)
	if err != nil {
		return
	}
	// A container may put something else in its place at any time: what is opened is what was asked for its kind.
	if st.Mode&unix.S_IFMT != unix.S_IFREG || name == "note" && st.Size <= maxNote {
		_ = f.Close()
		return
	}
	opened, err := reopen(f, unix.O_WRONLY)
	if err == nil {
		_ = opened.Truncate(0)
		_ = opened.Close()
	}
	if !errors.Is(err, unix.EWOULDBLOCK) || !s.breaking.TryLock() {
		_ = f.Close()
		return
	}
	// A process has a lease on the file, and could take another one before each try that does not wait: this one waits, the kernel ends
	// leases after /proc/sys/fs/lease-break-time.
	go func() {
		defer s.breaking.Unlock()
		defer f.Close()
		_ = unix.Truncate(inode(f), 0)
	}()
}

// update changes the index of a claim.
func (s *Store) update(uid string, change func(*index)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return nil
	}
	change(c)
	return s.save(c)
}
