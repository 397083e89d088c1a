package sessions

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const (
	// startTimeout and stopTimeout are the times after which a command without an answer is reported as NoAnswer.
	startTimeout, stopTimeout = 15 * time.Second, 120 * time.Second
	// keepTime is the time that the file of a command is kept for its answer.
	keepTime = 5 * time.Minute
	// maxMessage is the maximum length of the message of an answer, in bytes.
	maxMessage = 192
	// controlPerm are the permissions of a command's file, which containers read.
	controlPerm = 0o644
)

// command is the last command for a session.
type command struct {
	session.Control
	// at is when it was written; written: its file exists.
	at      time.Time
	written bool
}

// due returns when the command is to be carried out.
func (o *command) due() time.Time {
	if o.At.After(o.at) {
		return o.At
	}
	return o.at
}

// late reports whether the command should have been answered.
func (o *command) late(now time.Time) bool {
	timeout := stopTimeout
	if o.Verb == v1alpha1.SessionStart {
		timeout = startTimeout
	}
	return now.Sub(o.due()) >= timeout
}

// over reports whether the file of a command is no longer needed. prism-run has read it once it has answered.
func (o *command) over(answer *session.Answer, now time.Time) bool {
	switch {
	case answer == nil:
		return now.Sub(o.due()) >= keepTime
	case answer.Outcome.Final():
		return true
	}
	return !o.Until.IsZero() && now.Sub(o.Until) >= keepTime
}

// load reads the commands of a claim, which an earlier process may have written, and removes other files if this process writes.
func (s *Store) load(c *claim, leads bool) error {
	c.commands = map[string]*command{}
	names, err := s.Files.List(c.of.Control)
	for _, name := range names {
		path := filepath.Join(c.of.Control, name)
		raw, readErr := s.Files.Read(path)
		control, ok := session.ParseControl(raw)
		info, statErr := os.Lstat(path)
		switch {
		case readErr != nil || statErr != nil:
			err = errors.Join(err, readErr, statErr)
		case ok && store.WaitPattern.MatchString(name):
			c.commands[name] = &command{Control: control, at: info.ModTime(), written: true}
		case leads: // a kill left it
			err = errors.Join(err, s.Files.Remove(path))
		}
	}
	return err
}

// write writes a command for a session. It need not survive a power cut, which also ends the session.
func (s *Store) write(c *claim, folder string, control session.Control, now time.Time) error {
	raw, err := control.Encode()
	if err == nil {
		err = disk.Replace(s.Files, filepath.Join(c.of.Control, folder), raw, controlPerm, false)
	}
	if err == nil {
		c.commands[folder] = &command{Control: control, at: now, written: true}
	}
	s.failed(c, err)
	return err
}

// prune removes the files of commands that are answered or too old, and forgets the commands for sessions that are gone.
func (s *Store) prune(c *claim, now time.Time, there func(folder string) bool) {
	for folder, of := range c.commands {
		if of.at.After(now) {
			of.at = now // the clock was set back
		}
		gone := !there(folder)
		if of.written && (gone || of.over(c.answer(folder, of.ID), now)) {
			err := s.Files.Remove(filepath.Join(c.of.Control, folder))
			s.failed(c, err)
			of.written = err != nil
		}
		if gone && !of.written {
			delete(c.commands, folder)
		}
	}
}

func (s *Store) failed(c *claim, err error) {
	if err != nil {
		s.Failed(c.of.UID, err)
	}
}

// answer returns the answer of a session to the command with an id; nil if there is none.
func (c *claim) answer(folder, id string) *session.Answer {
	w := c.sessions[folder]
	if w == nil {
		return nil
	}
	for i := len(w.said) - 1; i >= 0; i-- {
		if w.said[i].ID == id {
			return &w.said[i]
		}
	}
	return nil
}

// open returns the command that a session has not answered; nil if there is none, or no answer is expected any more.
func (c *claim) open(folder string, now time.Time) *command {
	of := c.commands[folder]
	if of == nil || of.late(now) || c.answer(folder, of.ID) != nil {
		return nil
	}
	return of
}

// last describes the last command for a session; nil if there was none.
func (c *claim) last(folder string, now time.Time) *session.Answer {
	of := c.commands[folder]
	if of == nil { // known only to an earlier process
		said := c.sessions[folder].said
		if len(said) == 0 {
			return nil
		}
		return c.shown(said[len(said)-1], time.Time{})
	}
	answer := c.answer(folder, of.ID)
	if answer == nil {
		answer = &session.Answer{ID: of.ID, Outcome: session.Open}
		if of.late(now) {
			answer.Outcome = session.NoAnswer
		}
	}
	shown := c.shown(*answer, of.at)
	shown.Verb = of.Verb
	return shown
}

// shown returns an answer for the API, without times before its command.
func (c *claim) shown(a session.Answer, commanded time.Time) *session.Answer {
	a.Message = untrusted.Escape(a.Message, maxMessage)
	if a.Report != "" {
		a.Report = store.ReportID(c.of.UID, a.Report)
	}
	if a.Begun != nil && a.Begun.Before(commanded) {
		a.Begun = nil
	}
	if a.Ended != nil && (a.Ended.Before(commanded) || a.Begun != nil && a.Ended.Before(*a.Begun)) {
		a.Ended = nil
	}
	return &a
}
