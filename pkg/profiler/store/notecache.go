package store

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// noteRest is how long a note that is not locked must be unchanged until its session is over: a supervisor makes it before it locks it.
	noteRest = 5 * time.Second
	// scanNotes is how many bytes of a claim's notes are read in a scan: a container may change all of them all the time. A supervisor writes
	// about 2 KiB.
	scanNotes = 1 << 20
)

// stamp changes with the content of a note.
type stamp struct {
	inode        uint64
	size         int64
	mtime, ctime unix.Timespec
}

// notes are those of a claim in a scan.
type notes struct {
	// left is how many bytes may be read.
	left int64
	// before are the notes that need not be read again, as the last scan left them, after those of this one, by report.
	before, after map[string]stamp
}

// progress is how far a session is, by its note.
type progress int

const (
	// unread says that the session goes on as is known, or that its note is left to the next scan.
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
	// The lock is not tried while the supervisor may be about to take it, and a note that changes may change again in the same tick of the clock.
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
	if n.over() || !locked && (rests || released) { // after its last state, the process may go on without the tool
		return n, over
	}
	if rests {
		copying.notes.after[id] = is
	}
	return n, live
}

// begins is the progress of a session without a note.
func (s *Store) begins(dir *os.File, released bool) progress {
	var st unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) == nil && s.fresh(&st) && !released {
		return live
	}
	return over
}

// fresh reports whether a file has changed lately.
func (s *Store) fresh(st *unix.Stat_t) bool { return s.Now().Sub(time.Unix(st.Ctim.Unix())) < noteRest }
