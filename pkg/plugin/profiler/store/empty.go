package store

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// noteFile is the file of a session's folder that prism-run holds a lock on.
const noteFile = "note"

// waitingPart is the part of a claim's limit that processes which wait may still take in an inbox that is emptied, and maxWaiting the maximum
// size of each of their files. The profiler maps a file of 180 KB there: it could never record again without it.
const (
	waitingPart = 2
	maxWaiting  = 256 << 10
)

// empty empties the files of an inbox, except for files of processes that wait, up to that many bytes. It removes all files of a littered
// inbox: entries beyond the limit cannot be emptied one by one.
func (s *Store) empty(path string, littered bool, waiting int64) error {
	inbox, err := untrusted.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer inbox.Close()
	if littered {
		if err := disk.Empty(inbox, emptyEntries, s.truncate); err != nil && !errors.Is(err, disk.ErrManyEntries) {
			return err
		}
		return nil
	}
	left := maxEntries
	all := func(dir *os.File, name string, _ *unix.Stat_t) { s.truncate(dir, name) }
	others := func(dir *os.File, name string, st *unix.Stat_t) {
		if bytes := st.Blocks * 512; name != noteFile && name != session.AnswersFile && st.Size <= maxWaiting && bytes <= waiting {
			waiting -= bytes
			return
		}
		s.truncate(dir, name)
	}
	names, _, err := untrusted.Entries(inbox, maxEntries)
	for _, name := range names {
		visit := all
		if WaitPattern.MatchString(name) {
			visit = others
		}
		if dir, err := untrusted.Folder(inbox, name); err == nil {
			walk(dir, 1, &left, visit)
			_ = dir.Close()
		} else {
			s.truncate(inbox, name)
		}
	}
	return err
}

// kept reports whether a file keeps its content: notes, and answers to commands.
func kept(name string, size int64) bool {
	return name == noteFile && size <= untrusted.MaxNote || name == session.AnswersFile && size <= session.MaxAnswers
}

// truncate empties a file, even if a process has it open. It skips small files of supervisors, and other types of files, which take no space.
func (s *Store) truncate(dir *os.File, name string) {
	f, st, err := untrusted.Entry(dir, name)
	if err != nil {
		return
	}
	// A container may replace the file at any time: the opened file is the one whose type was checked.
	if st.Mode&unix.S_IFMT != unix.S_IFREG || kept(name, st.Size) {
		_ = f.Close()
		return
	}
	opened, err := untrusted.Reopen(f, unix.O_WRONLY)
	if err == nil {
		_ = opened.Truncate(0)
		_ = opened.Close()
	}
	if !errors.Is(err, unix.EWOULDBLOCK) || !s.breaking.TryLock() {
		_ = f.Close()
		return
	}
	// A process holds a lease on the file, and could take another lease before each non-blocking try. This call waits until the kernel
	// breaks the lease after /proc/sys/fs/lease-break-time.
	go func() {
		defer s.breaking.Unlock()
		defer f.Close()
		_ = unix.Truncate(untrusted.Inode(f), 0)
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
