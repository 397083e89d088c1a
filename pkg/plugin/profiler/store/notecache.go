package store

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
)

// scanNotes is the number of bytes of a claim's notes that a scan reads: a container may change all of them all the time. A supervisor
// writes about 2 KiB.
const scanNotes = 1 << 20

// notes are the notes of a claim in a scan.
type notes struct {
	// left is the number of bytes that may be read.
	left int64
	// before are the notes of the last scan that need not be read again, after the notes of this scan, by report.
	before, after map[string]untrusted.Stamp
}

// progress is the progress of a session according to its note.
type progress int

const (
	// unread: the session continues unchanged, or its note is left to the next scan.
	unread progress = iota
	live
	over
)

// notes begins a scan of a claim, remember ends it.
func (s *Store) notes(uid string) notes {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := notes{left: scanNotes, after: map[string]untrusted.Stamp{}}
	if c := s.claims[uid]; c != nil {
		begun.before = c.notes
	}
	return begun
}

func (s *Store) remember(uid string, scanned notes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[uid]; c != nil {
		c.notes = scanned.after
	}
}

// note reads the note of the session of a report, if it has changed since it was read.
func (s *Store) note(copying *copies, dir *os.File, id string, released bool) (note, progress) {
	f, st, err := untrusted.File(dir, "note", unix.O_RDONLY)
	if err != nil {
		return note{}, s.begins(dir, released)
	}
	defer f.Close()
	// The lock is not tried while the supervisor may be about to take it, and a note that changes may change again within the same clock
	// tick.
	rests, locked := !s.fresh(st), false
	if rests || released {
		locked = untrusted.Locked(f)
	}
	is := untrusted.StampOf(st)
	if rests && locked && copying.notes.before[id] == is {
		copying.notes.after[id] = is
		return nil, unread
	}
	if copying.notes.left <= 0 {
		return nil, unread
	}
	raw, _ := io.ReadAll(io.LimitReader(f, untrusted.MaxNote))
	copying.notes.left -= int64(len(raw))
	n := parseNote(raw)
	if n.over() || !locked && (rests || released) { // after its last state, the process may continue without the tool
		return n, over
	}
	if rests {
		copying.notes.after[id] = is
	}
	return n, live
}

// begins returns the progress of a session without a note.
func (s *Store) begins(dir *os.File, released bool) progress {
	var st unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) == nil && s.fresh(&st) && !released {
		return live
	}
	return over
}

// fresh reports whether a file has changed recently.
func (s *Store) fresh(st *unix.Stat_t) bool { return untrusted.Fresh(st, s.Now()) }
