package sampler

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// sampleGap is the minimum time between two rounds: GPM cannot compare closer samples.
const sampleGap = 100 * time.Millisecond

// missed is the number of intervals without an answer after which values are old.
const missed = 3

// worker samples one GPU in one session.
type worker struct {
	crew *crew
	id   gpu.UUID
	// identity is the identity in the last round.
	identity metrics.Identity
	interval time.Duration
	// wake receives a token when a MIG device must be released.
	wake chan struct{}
	// targets are the targets of GPM, by GPU instance.
	targets map[int]*target
	// devices are the GPU instances of the MIG devices of the last round; starts are the start times of its processes by pid.
	devices map[gpu.UUID]int
	starts  map[uint32]uint64
	// listed is the time of the last list of MIG devices.
	listed time.Time
	// absent are the processes of the last round that were missing in /proc.
	absent map[uint32]bool
	// last are the GPU's values of the last round, nil without one; lastAt is the time when they were read.
	last   *metrics.Values
	lastAt time.Time
	// clocks contains the reasons for lowered clocks in the last rounds.
	clocks metrics.ClockEventHistory
	// lostAt is the time since which the GPU has been lost; zero: it is not.
	lostAt time.Time
	// retry is the time to free samples again, after an error.
	retry time.Time
}

// target describes the samples of a GPU instance. At is the time of the latest one.
type target struct {
	devices string
	claims  []string
	at      time.Time
}

func newWorker(c *crew, identity metrics.Identity) *worker {
	return &worker{
		crew: c, id: identity.UUID, identity: identity, interval: c.s.opts.Interval, wake: make(chan struct{}, 1),
		targets: map[int]*target{}, devices: map[gpu.UUID]int{},
	}
}

// work samples until the session ends. The first round is immediate; then the workers are spread over the interval, so that the GPUs are
// not queried at the same time.
func (w *worker) work() {
	spread := rand.Float64() //nolint:gosec // a jitter
	due := time.Now()
	for {
		now := time.Now()
		if !now.Before(due) {
			if err := w.round(); err != nil && !w.goesOn(err) {
				return
			}
			due = now.Add(time.Duration(float64(w.interval) * (1 - spread/2)))
			if next := time.Now().Add(sampleGap); due.Before(next) {
				due = next
			}
			spread = 0
		}
		timer := time.NewTimer(time.Until(earliest(due, w.overdue())))
		select {
		case <-timer.C:
		case <-w.wake:
		case <-w.crew.run.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		if err := w.release(); err != nil {
			w.retry = time.Now().Add(releaseTime)
			if !w.goesOn(err) {
				return
			}
		}
	}
}

// goesOn reports whether the worker continues after an error, which it does unless the driver is gone.
func (w *worker) goesOn(err error) bool {
	switch {
	case w.crew.run.Err() != nil:
		return false
	case errors.Is(err, gpu.ErrDriverNotLoaded), errors.Is(err, errReopen):
		w.crew.end(err)
		return false
	}
	if w.lost(err) {
		w.crew.end(errReopen)
		return false
	}
	w.crew.s.opts.Log.V(2).Info("GPU did not respond", "gpu", w.id, "err", err)
	w.crew.s.failed(w.id)
	return true
}

// earliest is the earlier of two times; a zero second time is ignored.
func earliest(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}

// plan combines the requests for a device.
type plan struct {
	fields metrics.FieldSet
	claims []string
}

// plans returns the requests for the GPU and its MIG devices, and the interval. limited counts the claims whose interval is too short.
func (w *worker) plans() (plans map[gpu.UUID]*plan, interval time.Duration, limited int) {
	s := w.crew.s
	plans, interval = map[gpu.UUID]*plan{}, s.opts.Interval
	for _, want := range s.opts.Wanted(w.id) {
		p := plans[want.MIG]
		if p == nil {
			p = &plan{fields: s.nodeFields()}
			plans[want.MIG] = p
		}
		p.fields.AddSet(s.fieldsOf(want.Sets))
		if want.Claim != "" && !slices.Contains(p.claims, want.Claim) {
			p.claims = append(p.claims, want.Claim)
		}
		if want.Interval > 0 {
			interval = min(interval, max(want.Interval, s.opts.MinInterval))
			if want.Interval < s.opts.MinInterval {
				limited++
			}
		}
	}
	return plans, interval, limited
}

// of is the plan of a device; without requests it is the node's plan.
func (w *worker) of(plans map[gpu.UUID]*plan, mig gpu.UUID) plan {
	if p := plans[mig]; p != nil {
		return *p
	}
	return plan{fields: w.crew.s.nodeFields()}
}

// baseline reports whether the next sample of a target must be a baseline: there is no previous sample, or it is too old, or it belongs to
// other claims: previous claims of the GPU, or of a MIG device with the same placement and UUID. After the last claim of a GPU, its values
// continue.
func (w *worker) baseline(instance int, devices string, claims []string) bool {
	now := time.Now()
	t := w.targets[instance]
	w.targets[instance] = &target{devices: devices, claims: claims, at: now}
	switch {
	case t == nil, t.devices != devices, now.Sub(t.at) > missed*w.interval:
		return true
	case len(claims) == 0:
		return false
	}
	return !slices.ContainsFunc(claims, func(claim string) bool { return slices.Contains(t.claims, claim) })
}

// calls is the context of calls to the driver.
func (w *worker) calls() context.Context { return w.crew.calls }
