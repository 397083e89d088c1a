package store

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// noteRest is the time that an unlocked note must be unchanged before its session counts as finished: a supervisor creates it before it
	// locks it.
	noteRest = 5 * time.Second
	// scanNotes is the number of bytes of a claim's notes that a scan reads: a container may change all of them all the time. A supervisor
	// writes about 2 KiB.
	scanNotes = 1 << 20
)

// stamp changes with the content of a note.
type stamp struct {
	inode        uint64
	size         int64
	mtime, ctime unix.Timespec
}

// notes are the notes of a claim in a scan.
type notes struct {
	// left is the number of bytes that may be read.
	left int64
	// before are the notes of the last scan that need not be read again, after the notes of this scan, by report.
	before, after map[string]stamp
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
	begun := notes{left: scanNotes, after: map[string]stamp{}}
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
	f, st, err := fileWithin(dir, "note", unix.O_RDONLY)
	if err != nil {
		return note{}, s.begins(dir, released)
	}
	defer f.Close()
	// The lock is not tried while the supervisor may be about to take it, and a note that changes may change again within the same clock
	// tick.
	rests, locked := !s.fresh(st), false
	if rests || released {
		locked = errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
	}
	is := stamp{st.Ino, st.Size, st.Mtim, st.Ctim}
	if rests && locked && copying.notes.before[id] == is {
		copying.notes.after[id] = is
		return nil, unread
	}
	if copying.notes.left <= 0 {
		return nil, unread
	}
	raw, _ := io.ReadAll(io.LimitReader(f, maxNote))
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
func (s *Store) fresh(st *unix.Stat_t) bool { return s.Now().Sub(time.Unix(st.Ctim.Unix())) < noteRest }
