package sampler

import (
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
)

const (
	// releaseTime is how long a MIG device may take to be destroyed once its samples are freed.
	releaseTime = 2 * time.Second
	// dropTime is after how long the release of a MIG device that no round has found is dropped.
	dropTime = time.Minute
)

// release is a MIG device whose claim is unprepared.
type release struct {
	// at is when that began, and then when the samples were freed.
	at time.Time
	// claim is the UID. Another claim that wants the device has a new one, which may have the same UUID.
	claim string
	// stays: it is not destroyed.
	stays bool
	// found: a GPU has it, which may not answer now.
	found bool
	// handled: its samples are freed. idle: its claim does not want it any more, so it is prepared again if it does.
	handled, idle bool
	// checked: it was inspected again after releaseTime.
	checked bool
}

// Release frees what is held of a MIG device whose claim is unprepared, and does not wait for it. A device that is destroyed and still there
// two seconds later, and not of another claim, has the session closed and reopened, once. One that is not destroyed may be held for other
// claims, and stays held then.
func (s *Sampler) Release(mig gpu.UUID, claim string, destroyed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropUnfound()
	s.releases[mig] = &release{at: time.Now(), claim: claim, stays: !destroyed, checked: !destroyed}
	for _, w := range s.workers {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// dropUnfound drops the releases of MIG devices that came and went between two rounds. The lock is held.
func (s *Sampler) dropUnfound() {
	for mig, r := range s.releases {
		if !r.found && time.Since(r.at) > dropTime {
			delete(s.releases, mig)
		}
	}
}

// release frees the samples of MIG devices of this GPU whose claims are unprepared, and inspects those again that should be gone.
// errReopen: one is still there.
func (w *worker) release() error {
	for mig, instance := range w.devices {
		due, overdue := w.pending(mig)
		if due && w.held(mig, instance) {
			continue
		}
		if due {
			delete(w.targets, instance)
			if err := w.crew.s.opts.Library.ReleaseSamples(w.calls(), w.id, instance); err != nil {
				return err
			}
			w.handled(mig)
		}
		if overdue && !due {
			return w.inspect()
		}
	}
	return nil
}

// pending reports whether the samples of a MIG device are to be freed, and whether it should be gone by now.
func (w *worker) pending(mig gpu.UUID) (due, overdue bool) {
	w.crew.s.mu.Lock()
	defer w.crew.s.mu.Unlock()
	r := w.crew.s.releases[mig]
	if r == nil {
		return false, false
	}
	r.found = true
	return !r.handled, !r.checked && time.Since(r.at) >= releaseTime
}

// held reports whether a MIG device stays and claims want one of its GPU instance: then its samples are not freed.
func (w *worker) held(mig gpu.UUID, instance int) bool {
	wanted := slices.ContainsFunc(w.crew.s.opts.Wanted(w.id), func(want Want) bool {
		of, here := w.devices[want.MIG]
		return here && of == instance
	})
	w.crew.s.mu.Lock()
	defer w.crew.s.mu.Unlock()
	if r := w.crew.s.releases[mig]; r == nil || !r.stays || !wanted {
		return false
	}
	delete(w.crew.s.releases, mig)
	return true
}

// handled notes that the samples are freed. A device that another claim wants by now is sampled again.
func (w *worker) handled(mig gpu.UUID) {
	var claims []string
	for _, want := range w.crew.s.opts.Wanted(w.id) {
		if want.MIG == mig {
			claims = append(claims, want.Claim)
		}
	}
	w.crew.s.mu.Lock()
	defer w.crew.s.mu.Unlock()
	switch r := w.crew.s.releases[mig]; {
	case r == nil:
	case r.stays, r.recreated(claims):
		delete(w.crew.s.releases, mig)
	default:
		r.handled, r.at = true, time.Now()
	}
}

// overdue is when the next MIG device should be gone; zero where none is waited for.
func (w *worker) overdue() time.Time {
	w.crew.s.mu.Lock()
	defer w.crew.s.mu.Unlock()
	var first time.Time
	for mig, r := range w.crew.s.releases {
		if _, here := w.devices[mig]; here && !r.checked {
			if at := r.at.Add(releaseTime); first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	if !first.IsZero() && first.Before(w.retry) {
		return w.retry
	}
	return first
}

// inspect asks which MIG devices there are. errReopen: one that should be gone is not.
func (w *worker) inspect() error {
	plans, _, _ := w.plans()
	at := time.Now()
	_, devices, err := w.crew.s.opts.Library.MIGDevices(w.calls(), w.id)
	if err != nil {
		return err
	}
	w.inspected(at, devices, plans)
	w.crew.s.mu.Lock()
	defer w.crew.s.mu.Unlock()
	var still bool
	for i := range devices {
		r := w.crew.s.releases[devices[i].UUID]
		if r != nil && !r.checked && time.Since(r.at) >= releaseTime {
			r.checked, still = true, true
		}
	}
	if !still {
		return nil
	}
	w.crew.s.status.Reopened++
	return errReopen
}

// inspected notes the MIG devices that there are, listed after a time, and forgets releases of those that are gone or of a new claim.
func (w *worker) inspected(at time.Time, devices []metrics.MIGDevice, plans map[gpu.UUID]*plan) {
	s := w.crew.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropUnfound()
	now := make(map[gpu.UUID]int, len(devices))
	for i := range devices {
		d := &devices[i]
		now[d.UUID] = d.GPUInstance
		r := s.releases[d.UUID]
		if r == nil {
			continue
		}
		// One that was not there after it was released is another one, of a claim that may be prepared just now.
		_, before := w.devices[d.UUID]
		if since := !before && r.at.Before(w.listed); since || r.handled && r.recreated(w.of(plans, d.UUID).claims) {
			delete(s.releases, d.UUID)
		}
	}
	for mig := range w.devices {
		if _, still := now[mig]; !still {
			delete(s.releases, mig)
		}
	}
	w.devices, w.listed = now, at
}

// abandon frees the samples of GPU instances that are gone.
func (w *worker) abandon(devices []metrics.MIGDevice) error {
	for instance := range w.targets {
		if instance == WholeGPU || slices.ContainsFunc(devices, func(d metrics.MIGDevice) bool { return d.GPUInstance == instance }) {
			continue
		}
		delete(w.targets, instance)
		if err := w.crew.s.opts.Library.ReleaseSamples(w.calls(), w.id, instance); err != nil {
			return err
		}
	}
	return nil
}

// recreated reports whether a MIG device is of another claim than the one that is unprepared, or of that one again, from the claims that want
// it now. It notes whether that one does.
func (r *release) recreated(claims []string) bool {
	for _, claim := range claims {
		if claim != r.claim || r.idle {
			return true
		}
	}
	r.idle = len(claims) == 0
	return false
}

// releasing reports whether the samples of one of the MIG devices of a GPU instance are freed, as it may be destroyed: then it is not sampled.
func (w *worker) releasing(devices []metrics.MIGDevice) bool {
	w.crew.s.mu.Lock()
	defer w.crew.s.mu.Unlock()
	return slices.ContainsFunc(devices, func(d metrics.MIGDevice) bool { return w.crew.s.releases[d.UUID] != nil })
}
