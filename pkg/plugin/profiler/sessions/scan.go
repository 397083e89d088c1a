package sessions

import (
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// noteFile is the file of a session's folder that its prism-run holds a lock on.
const noteFile = "note"

// waiting is a process that waits, or is recorded.
type waiting struct {
	process untrusted.Process
	state   session.State
	since   time.Time
	// said are the answers of its prism-run.
	said []session.Answer
	// note and answers are the stamps of the files at their last read; zero if they must be read again.
	note, answers untrusted.Stamp
}

// scan reads what has changed of a claim's sessions. Hold its lock.
func (s *Store) scan(c *claim) {
	now, leads := s.Now(), s.Leads() == nil
	if !c.scanned.IsZero() && now.Sub(c.scanned).Abs() < scanEvery && c.owned == leads {
		return
	}
	c.scanned = now
	if !c.owned || !leads { // another process may have written commands
		err := s.load(c, leads)
		s.failed(c, err)
		c.owned = leads && err == nil
	}
	inbox, err := untrusted.Open(c.of.Inbox)
	if err != nil {
		c.sessions = nil
		return
	}
	defer inbox.Close()
	names, more, err := untrusted.Entries(inbox, s.bounds.entries)
	folders := slices.DeleteFunc(names, func(name string) bool { return !store.WaitPattern.MatchString(name) })
	slices.Sort(folders)
	read, left := map[string]*waiting{}, s.bounds.bytes
	for _, folder := range folders[:min(len(folders), s.bounds.claim)] {
		if w := c.read(inbox, folder, &left, now); w != nil {
			read[folder] = w
		}
	}
	c.sessions = read
	if leads {
		s.prune(c, now, func(folder string) bool {
			_, there := slices.BinarySearch(folders, folder)
			return there || more || err != nil
		})
	}
}

// read reads the folder of a session; nil if it is none, or its process has exited. Answers are read before the note, and prism-run writes
// them in the other order: the state is never older than an answer.
func (c *claim) read(inbox *os.File, folder string, left *int64, now time.Time) *waiting {
	dir, err := untrusted.Folder(inbox, folder)
	if err != nil {
		return nil
	}
	defer dir.Close()
	var w waiting
	if before := c.sessions[folder]; before != nil {
		w = *before
	}
	if f, st, err := untrusted.File(dir, session.AnswersFile, unix.O_RDONLY); err != nil {
		w.said, w.answers = nil, untrusted.Stamp{}
	} else {
		if raw, ok := changed(f, st, &w.answers, session.MaxAnswers, left, now); ok {
			w.said = session.ParseAnswers(raw, now)
		}
		_ = f.Close()
	}
	f, st, err := untrusted.File(dir, noteFile, unix.O_RDONLY)
	if err != nil {
		return nil
	}
	defer f.Close()
	if !untrusted.Fresh(st, now) && !untrusted.Locked(f) {
		return nil
	}
	if raw, ok := changed(f, st, &w.note, untrusted.MaxNote, left, now); ok {
		w.parse(raw, now)
	}
	if w.state == "" {
		return nil
	}
	return &w
}

// changed reads a file if its stamp differs from the last read, and bytes are left. A file that was just written may change again with the
// same stamp.
func changed(f *os.File, st *unix.Stat_t, last *untrusted.Stamp, most int64, left *int64, now time.Time) (raw []byte, ok bool) {
	stamp := untrusted.StampOf(st)
	if *last == stamp || *left <= 0 {
		return nil, false
	}
	if untrusted.Fresh(st, now) {
		stamp = untrusted.Stamp{}
	}
	raw, err := io.ReadAll(io.LimitReader(f, most))
	*left -= int64(len(raw))
	if err != nil {
		return nil, false
	}
	*last = stamp
	return raw, true
}

// parse reads a note. The state is "" if prism-run has not written it.
func (w *waiting) parse(raw []byte, now time.Time) {
	note := untrusted.ParseNote(raw, func(key string) bool {
		return key == "state" || key == "since" || slices.Contains(untrusted.ProcessKeys, key)
	})
	w.process = untrusted.ProcessOf(note, now)
	w.process.Started = past(w.process.Started, now)
	w.state = session.State(strings.TrimRight(note["state"], " "))
	if !slices.Contains(session.States, w.state) {
		w.state = ""
	}
	since, ok := untrusted.Instant(strings.TrimRight(note["since"], " "), now)
	if !ok {
		since = w.process.Started
	}
	w.since = past(since, now)
}

// past returns a time that is not in the future, for a time that may be missing.
func past(at, now time.Time) time.Time {
	if at.IsZero() || at.After(now) {
		return now.UTC()
	}
	return at
}

// session describes a session.
func (c *claim) session(folder string, now time.Time) session.Session {
	w := c.sessions[folder]
	return session.Session{
		ID: store.ReportID(c.of.UID, folder), Namespace: c.of.Namespace, NamespaceUID: c.of.NamespaceUID, Claim: c.of.Name, ClaimUID: c.of.UID,
		Pod: w.process.Pod, Container: w.process.Container, Node: c.of.Node, Process: w.process.Name, PID: w.process.PID, Tool: c.of.Tool,
		Started: w.process.Started, Since: w.since, State: w.state, Last: c.last(folder, now),
	}
}
