package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// The reasons of refusals.
const (
	refusedRecording = "it is recording already"
	refusedEnding    = "its recording is ending"
	refusedWaiting   = "it is not recording"
	refusedOpen      = "another command is open"
	refusedFull      = "recording is stopped: the reports of the claim reached their limit"
	refusedFrequency = "the claim samples no CPUs, so samplingFrequencyHz has no effect"
	refusedBacktrace = "the claim samples no CPUs, so backtrace has no effect"
	refusedCounters  = "it records counters of GPUs, so samplingFrequencyHz and backtrace have no effect"
	refusedExited    = "its process has exited"
	refusedArmed     = "it is always armed: arm in its ProfilerConfig is not OnDemand"
	refusedFailed    = "the node failed to write the command; try again"
	refusedDuration  = "duration must be at most %v, the limit of the profiler's policy"
)

// Command carries out a command for sessions or claims of the node, and returns when it is written. The same id has the same answer.
// session.ErrInvalid: the command is invalid. store.ErrFollowing: another process of the node carries out commands.
func (s *Store) Command(ctx context.Context, c session.Command) (session.Accepted, error) {
	selects, err := validate(c, s.Now())
	if err != nil {
		return session.Accepted{}, err
	}
	if err := s.Leads(); err != nil {
		return session.Accepted{}, err
	}
	of := &answer{}
	if !c.DryRun {
		of = s.answered.of(c.Namespace+"/"+c.NamespaceUID, c.ID)
		of.mu.Lock()
		defer of.mu.Unlock()
	}
	if of.accepted == nil {
		carryOut := s.forSessions
		if selects == nil {
			carryOut = s.forClaims
		}
		accepted, complete, err := carryOut(ctx, c, selects)
		if err != nil {
			return session.Accepted{}, err
		}
		if !complete {
			accepted.Now = s.Now()
			return accepted, nil // the next try may succeed
		}
		of.accepted = &accepted
	}
	accepted := *of.accepted
	accepted.Now = s.Now()
	return accepted, nil
}

// target is the sessions of a claim that accept a command, by folder.
type target struct {
	claim   *claim
	folders []string
}

// forSessions carries out a command for sessions: it first counts the ones that accept it, on which the time of their start depends.
// complete: all files were written.
func (s *Store) forSessions(
	ctx context.Context, c session.Command, selects func(session.Session) bool,
) (a session.Accepted, complete bool, err error) {
	var targets []target
	count, most := 0, s.maxDuration()
	s.visit(c.Namespace, c.NamespaceUID, func(of *claim, folder string) {
		one := of.session(folder, s.Now())
		if !selects(one) {
			return
		}
		reason, _ := of.decide(folder, c, s.Now(), most)
		switch {
		case reason != "":
			a.Refused = append(a.Refused, session.Refusal{Name: one.ID, Reason: reason})
			return
		case c.DryRun:
			a.Names = append(a.Names, one.ID)
			return
		}
		count++
		if len(targets) == 0 || targets[len(targets)-1].claim != of {
			targets = append(targets, target{claim: of})
		}
		last := &targets[len(targets)-1]
		last.folders = append(last.folders, folder)
	})
	complete, now := true, s.Now()
	for _, t := range targets {
		if err := ctx.Err(); err != nil {
			return a, false, err
		}
		complete = s.passOn(t, c, window{count, now, most}, &a) && complete
	}
	return a, complete, nil
}

// maxDuration returns the maximum length of a recording.
func (s *Store) maxDuration() (most time.Duration) {
	if s.MaxDuration != nil {
		most = s.MaxDuration()
	}
	return cmp.Or(most, session.MaxDuration)
}

// window is the number of recordings of the node that begin together, the time of their command, and their maximum length.
type window struct {
	sessions int
	now      time.Time
	most     time.Duration
}

// passOn writes a command for sessions of a claim, unless another command came first.
func (s *Store) passOn(t target, c session.Command, w window, a *session.Accepted) (complete bool) {
	complete = true
	t.claim.mu.Lock()
	defer t.claim.mu.Unlock()
	control := w.control(c, t.claim.of.ByHand)
	for _, folder := range t.folders {
		id, now := store.ReportID(t.claim.of.UID, folder), s.Now()
		reason, done := t.claim.decide(folder, c, now, w.most)
		if reason == "" && !done {
			if !t.claim.owned || s.write(t.claim, folder, control, now) != nil {
				reason, complete = refusedFailed, false
			}
		}
		if reason != "" {
			a.Refused = append(a.Refused, session.Refusal{Name: id, Reason: reason})
		} else {
			a.Names = append(a.Names, id)
		}
	}
	return complete
}

// decide returns the reason why a command does not apply to a session; "" if it does. done: it was passed on before. most is the maximum
// length of a recording.
func (c *claim) decide(folder string, to session.Command, now time.Time, most time.Duration) (reason string, done bool) {
	w, open := c.sessions[folder], c.open(folder, now)
	last := c.commands[folder]
	switch {
	case w == nil:
		return refusedExited, false
	case last != nil && last.ID == to.ID, c.answer(folder, to.ID) != nil:
		return "", true
	case to.Verb == v1alpha1.SessionStart:
		return c.decideStart(w, open, to, most), false
	case open != nil && open.Verb == v1alpha1.SessionStart:
		return "", false
	case open != nil:
		return refusedOpen, false
	case w.state == session.Waiting:
		return refusedWaiting, false
	case w.state == session.Ending:
		return refusedEnding, false
	}
	return "", false
}

func (c *claim) decideStart(w *waiting, open *command, to session.Command, most time.Duration) (reason string) {
	samples := c.of.ByHand.SamplesCPU
	switch {
	case to.Duration > most:
		return fmt.Sprintf(refusedDuration, most)
	case c.of.Counters && (to.SamplingFrequencyHz > 0 || to.Backtrace != ""):
		return refusedCounters
	case to.SamplingFrequencyHz > 0 && !samples:
		return refusedFrequency
	case to.Backtrace != "" && !samples:
		return refusedBacktrace
	case c.of.Stopped:
		return refusedFull
	case w.state == session.Ending:
		return refusedEnding
	case w.state != session.Waiting:
		return refusedRecording
	case open != nil:
		return refusedOpen
	}
	return ""
}

// control returns the command for one session, whose recording begins before the window.
func (w window) control(c session.Command, of store.ByHand) session.Control {
	control := session.Control{ID: c.ID, Verb: c.Verb, SamplingFrequencyHz: c.SamplingFrequencyHz, Backtrace: c.Backtrace}
	if c.Verb != v1alpha1.SessionStart {
		return control
	}
	lead := session.Lead(w.sessions)
	begin := c.At
	if begin.IsZero() {
		begin = w.now.Add(lead)
	}
	if at := begin.Add(-lead); at.After(w.now) {
		control.At = at
	}
	// The claim's duration may be older than the limit.
	control.Until = begin.Add(min(cmp.Or(c.Duration, of.Duration, w.most), w.most))
	return control
}

// forClaims arms or disarms claims.
func (s *Store) forClaims(
	ctx context.Context, c session.Command, _ func(session.Session) bool,
) (a session.Accepted, complete bool, err error) {
	named := set(c.Claims)
	arm := sync.OnceValues(func() (func(claimUID string) error, error) { return s.Arm(c.Verb == v1alpha1.SessionArm) })
	complete = true
	for _, of := range s.Prepared(c.Namespace, c.NamespaceUID) {
		if err := ctx.Err(); err != nil {
			return a, false, err
		}
		reason := ""
		switch {
		case !named[of.Name], of.Counters:
			continue
		case !of.ByHand.OnDemand:
			reason = refusedArmed
		case !c.DryRun:
			do, err := arm()
			if err == nil {
				err = do(of.UID)
			}
			switch {
			case errors.Is(err, store.ErrFollowing):
				return a, false, err
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil:
				s.Failed(of.UID, err)
				reason, complete = refusedFailed, false
			}
		}
		if reason != "" {
			a.Refused = append(a.Refused, session.Refusal{Name: of.Name, Reason: reason})
		} else {
			a.Names = append(a.Names, of.Name)
		}
	}
	return a, complete, nil
}
