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

// use is what a claim takes.
type use struct {
	uid     string
	total   int64
	inbox   int64
	crowded bool
	limit   int64
	stopped *time.Time
}

// limit stops the recording of claims that are over their limit, and of those that take most while the node is over its own. What they
// still write is truncated after the grace.
func (s *Store) limit() {
	uses, all := s.uses()
	for _, u := range uses {
		over := u.crowded || (u.limit > 0 && u.total > u.limit)
		if over || u.stopped != nil {
			s.report(u.uid, s.stop(u))
		}
	}
	if s.NodeBytes <= 0 || all <= s.NodeBytes {
		return
	}
	largest := use{}
	for _, u := range uses {
		if u.inbox > largest.inbox && u.stopped == nil {
			largest = u
		}
	}
	if largest.uid != "" {
		s.report(largest.uid, s.stop(largest))
	}
}

func (s *Store) report(uid string, err error) {
	if err != nil {
		s.Failed(uid, err)
	}
}

// uses measures all claims.
func (s *Store) uses() (uses []use, all int64) {
	s.mu.Lock()
	for uid, c := range s.claims {
		uses = append(uses, use{uid: uid, total: c.bytes(), limit: c.Claim.MaxBytes, stopped: c.Stopped})
	}
	s.mu.Unlock()
	for i := range uses {
		u := &uses[i]
		if inbox, err := openDir(s.path(u.uid, inboxDir)); err == nil {
			u.inbox, u.crowded = usage(inbox)
			_ = inbox.Close()
		}
		u.total += u.inbox
		all += u.total
	}
	return uses, all
}

// stop ends the recording of a claim; again after the grace, it empties the inbox.
func (s *Store) stop(u use) error {
	if u.stopped == nil {
		now := s.Now().UTC()
		err := disk.Replace(s.Files, s.path(u.uid, planDir, stopFile), []byte(reasonFull+"\n"), 0o644, false)
		err = errors.Join(err, s.update(u.uid, func(c *index) { c.Stopped = &now }))
		s.Changed(report.Report{ClaimUID: u.uid})
		return err
	}
	if s.Now().Sub(*u.stopped) < grace || u.inbox == 0 {
		return nil
	}
	inbox, err := openDir(s.path(u.uid, inboxDir))
	if err != nil {
		return err
	}
	defer inbox.Close()
	left := maxEntries
	walk(inbox, 0, &left, truncate)
	return s.update(u.uid, func(c *index) {
		for _, r := range c.Reports {
			if r.State == report.Recording {
				changed := *r
				changed.Reason = reasonFull
				*r = changed
			}
		}
		c.Truncated = true
	})
}

// truncate empties a file, also one that a process has open. Notes stay, and other kinds of files take no space.
func truncate(dir *os.File, name string, st *unix.Stat_t) {
	if st.Mode&unix.S_IFMT != unix.S_IFREG || name == "note" && st.Size <= maxNote {
		return
	}
	f, _, err := within(dir, name)
	if err != nil {
		return
	}
	defer f.Close()
	if opened, err := reopen(f, unix.O_WRONLY); err == nil {
		_ = opened.Truncate(0)
		_ = opened.Close()
	}
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
