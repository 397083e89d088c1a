package inventory

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// ErrReleased is the kind of every ReleasedError: the session is closed so that a GPU can be reset.
var ErrReleased = errors.New("GPU released for maintenance")

// ReleasedError is the error of calls while the session is closed for a reset. It is a kind of gpu.ErrInUse: a later call succeeds.
type ReleasedError struct {
	// Until is the time at which the session is opened again.
	Until time.Time
}

// Error names the time.
func (e *ReleasedError) Error() string {
	return fmt.Sprintf("%v until %s", ErrReleased, e.Until.UTC().Format(time.RFC3339))
}

// Is reports the kinds of the error.
func (e *ReleasedError) Is(target error) bool { return target == ErrReleased || target == gpu.ErrInUse }

// Release closes the session and opens none before that time, because a reset is refused while a client is attached. It waits for running
// calls of claims. The view stays as it is; the polls report ErrReleased. The zero time, or one that has passed, ends a release at once.
func (i *Inventory) Release(until time.Time) {
	i.claims.Lock()
	defer i.claims.Unlock()
	i.inspecting <- struct{}{}
	i.until.Store(&until)
	if i.released() != nil {
		i.closeSession()
	}
	<-i.inspecting
	select {
	case i.woken <- struct{}{}:
	default:
	}
}

// released returns a *ReleasedError during a release.
func (i *Inventory) released() error {
	if until := i.until.Load(); until != nil && i.opts.Clock.Now().Before(*until) {
		return &ReleasedError{Until: *until}
	}
	return nil
}

// untilReopened shortens a wait to the end of a release.
func (i *Inventory) untilReopened(wait time.Duration) time.Duration {
	if i.released() == nil {
		return wait
	}
	return max(min(wait, i.until.Load().Sub(i.opts.Clock.Now())), 0)
}

// opened is the session while it is usable.
type opened struct {
	mu      sync.Mutex
	session Session
	changed chan struct{} // closed when another session, or none, is open
}

func newOpened() *opened { return &opened{changed: make(chan struct{})} }

// get returns the session, nil without one, and a channel that is closed when it is no longer the open one.
func (o *opened) get() (Session, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.session, o.changed
}

// set replaces the session by none, or none by a session.
func (o *opened) set(session Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if (o.session == nil) == (session == nil) {
		return
	}
	o.session = session
	close(o.changed)
	o.changed = make(chan struct{})
}

const (
	// firstReopening is the time from the loss of a GPU until the session is reopened. It is doubled each time.
	firstReopening   = time.Minute
	longestReopening = 16 * time.Minute
)

// reopening says when the session is reopened because of lost GPUs: after a reset they may answer only a new session.
type reopening struct {
	lost map[string]bool
	at   time.Time
	wait time.Duration
	// hangs: a call occupies the library, so that a session cannot be closed.
	hangs bool
}

// note sets the time after an inspection with these faults.
func (r *reopening) note(faults []gpu.Fault, now time.Time) {
	lost, more := map[string]bool{}, false
	r.hangs = false
	for n := range faults {
		f := &faults[n]
		r.hangs = r.hangs || errors.Is(f.Err, gpu.ErrTimeout)
		if !errors.Is(f.Err, gpu.ErrLost) && !errors.Is(f.Err, errNotListed) {
			continue
		}
		key := string(f.UUID)
		if key == "" {
			key = fmt.Sprint(f.Index)
		}
		lost[key] = true
		more = more || !r.lost[key]
	}
	if r.lost = lost; more {
		r.wait = firstReopening
		r.at = now.Add(r.wait)
	}
}

// due reports whether it is time, and then sets the next one.
func (r *reopening) due(now time.Time) bool {
	if len(r.lost) == 0 || r.hangs || now.Before(r.at) {
		return false
	}
	r.wait = min(2*r.wait, longestReopening)
	r.at = now.Add(r.wait)
	return true
}
