package sampler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	// firstRetry is the first wait between attempts to open the driver. It is doubled after each attempt, up to the interval.
	firstRetry = 500 * time.Millisecond
	// xidWait is the duration of a call for XIDs: closing the session takes as long.
	xidWait = 500 * time.Millisecond
)

// errNoGPUs: the driver has no GPU, perhaps not yet: a session knows only the GPUs that existed when it was opened.
var errNoGPUs = errors.New("the driver has no GPU")

// errReopen ends a session to free its resources or to find a lost GPU again.
var errReopen = errors.New("the session will be reopened")

// Run samples until the context ends, and then returns nil. gpu.ErrDriverReplaced: only a new process can sample the driver.
func (s *Sampler) Run(ctx context.Context) error {
	retry := backoff.Backoff{First: firstRetry, Max: max(s.opts.Interval, firstRetry)}
	defer s.stop()
	for s.resumed(ctx) {
		opened, err := s.session(ctx)
		if opened {
			retry.Reset()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, gpu.ErrDriverReplaced):
			return err
		case errors.Is(err, errReopen), errors.Is(err, errSuspended):
			continue
		}
		s.lose(err)
		retry.Defer(time.Now())
		if !sleep(ctx, time.Until(retry.Next())) {
			return nil
		}
	}
	return nil
}

// stop stops the timers of GPUs that may not respond.
func (s *Sampler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, expiry := range s.expiries {
		expiry.Stop()
	}
}

// sleep waits, and returns false if the context ends first.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// session opens the driver and samples until it is gone, and reports whether it was opened.
func (s *Sampler) session(ctx context.Context) (opened bool, err error) {
	if err := s.opts.Library.Open(ctx); err != nil {
		return false, err
	}
	// Calls that have begun continue within their deadline: an abandoned call would block further calls on its GPU.
	calls := context.WithoutCancel(ctx)
	defer func() {
		if closeErr := s.opts.Library.Close(); closeErr != nil {
			s.opts.Log.V(2).Info("Failed to close the driver", "err", closeErr)
		}
	}()
	run, stop := context.WithCancel(ctx)
	all := &crew{s: s, run: run, calls: calls, ended: make(chan error, 1)}
	defer all.wait()
	defer stop()
	if !s.crewed(all) {
		return true, errSuspended
	}
	broken, err := all.list()
	if err != nil {
		return false, err
	}
	s.open()
	all.running.Go(all.countXIDs)
	if len(broken) > 0 {
		all.running.Go(func() { all.relist(broken) })
	}
	select {
	case err = <-all.ended:
	case <-ctx.Done():
	}
	return true, err
}

// open stores that a session is open.
func (s *Sampler) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Err = nil
}

// crew is the set of goroutines of a session.
type crew struct {
	s *Sampler
	// run ends with the session; calls use the other context.
	run, calls context.Context
	running    sync.WaitGroup
	// ended receives the reason for the end of the session.
	ended chan error
}

// wait waits for all goroutines of the session.
func (c *crew) wait() {
	c.running.Wait()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.crew = nil
	clear(c.s.workers)
}

// end ends the session, unless it is already ending.
func (c *crew) end(err error) {
	select {
	case c.ended <- err:
	default:
	}
}

// list lists the GPUs, and starts a worker for each GPU without one. The driver queries only GPUs that it has not listed yet. list returns
// the GPUs that do not respond.
func (c *crew) list() (broken []gpu.Fault, err error) {
	var identities []metrics.Identity
	identities, broken, err = c.s.opts.Library.GPUs(c.calls)
	if err != nil {
		return nil, err
	}
	if len(identities)+len(broken) == 0 {
		return nil, errNoGPUs
	}
	broken = c.s.recall(broken, identities)
	for _, fault := range broken {
		c.s.opts.Log.V(2).Info("GPU did not respond", "index", fault.Index, "gpu", fault.UUID, "err", fault.Err)
		c.s.failed(fault.UUID)
		if fault.UUID != "" {
			c.s.down(metrics.Identity{UUID: fault.UUID, Index: fault.Index, PCIBusID: fault.BusID})
		}
	}
	for _, identity := range identities {
		c.s.mu.Lock()
		known := c.s.workers[identity.UUID] != nil
		w := newWorker(c, identity)
		if !known {
			c.s.workers[identity.UUID] = w
		}
		if c.s.gpus[identity.UUID] == nil {
			c.s.expect(identity, c.s.opts.Interval)
		}
		c.s.mu.Unlock()
		if !known {
			c.running.Go(w.work)
		}
	}
	return broken, nil
}

// relist queries the GPUs that did not respond again, each interval, until all respond. Lost GPUs may require another session.
func (c *crew) relist(broken []gpu.Fault) {
	for asked := 1; len(broken) > 0 && sleep(c.run, c.s.opts.Interval); asked++ {
		var err error
		if broken, err = c.list(); err != nil {
			c.end(err)
			return
		}
		lost := slices.IndexFunc(broken, func(f gpu.Fault) bool { return errors.Is(f.Err, gpu.ErrLost) })
		if lost >= 0 && asked >= missed && c.s.reopens(broken[lost].UUID) {
			c.end(errReopen)
			return
		}
	}
}

// countXIDs waits for XIDs. A driver without events reports none.
func (c *crew) countXIDs() {
	log := xidLog{log: c.s.opts.Log}
	defer log.write(true)
	for ; c.run.Err() == nil; log.write(false) {
		id, xid, err := c.s.opts.Library.NextXID(c.calls, xidWait)
		var unsupported *gpu.UnsupportedError
		switch {
		case errors.As(err, &unsupported):
			return
		case errors.Is(err, gpu.ErrDriverNotLoaded):
			c.end(err)
			return
		case err != nil:
			sleep(c.run, xidWait)
		case id != "":
			log.add(id, xid)
			c.s.note(id, xid)
		}
	}
}
