package sampler

import (
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	// releaseTime is the time to destroy a MIG device after its samples are freed.
	releaseTime = 2 * time.Second
	// dropTime is the time after which the release of a MIG device that no round has found is dropped.
	dropTime = time.Minute
)

// release is a MIG device whose claim is being unprepared.
type release struct {
	// at is the time of the release, later the time when the samples were freed.
	at time.Time
	// claim is the UID of the claim. If another claim requests the device, it is a new one, possibly with the same UUID.
	claim string
	// stays is set if the device is not destroyed.
	stays bool
	// found is set if a GPU has the device; the GPU may not respond at the moment.
	found bool
	// handled is set after its samples are freed. idle is set after its claim stopped requesting it: if the claim requests it again, it was
	// prepared again.
	handled, idle bool
	// checked is set after the check that follows releaseTime.
	checked bool
}

// Release frees the samples of a MIG device whose claim is being unprepared, without waiting for it. If a destroyed device still exists two
// seconds later and belongs to no other claim, the session is reopened, once. A device that is not destroyed may still be sampled for other
// claims.
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

// dropUnfound drops the releases of MIG devices that existed only between two rounds. The caller holds the lock.
func (s *Sampler) dropUnfound() {
	for mig, r := range s.releases {
		if !r.found && time.Since(r.at) > dropTime {
			delete(s.releases, mig)
		}
	}
}

// release frees the samples of this GPU's MIG devices whose claims are being unprepared, and checks devices that should be destroyed.
// errReopen: one still exists.
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

// pending reports whether the samples of a MIG device must be freed, and whether it should be destroyed by now.
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

// held reports whether a MIG device stays and a claim requests a device of its GPU instance: its samples are not freed then.
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

// handled stores that the samples are freed. A device that another claim requests by now is sampled again.
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

// overdue is the time when the next MIG device should be destroyed; zero if none is expected.
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

// inspect lists the MIG devices. errReopen: one that should be destroyed exists.
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

// inspected compares the releases with the listed MIG devices, and drops the releases of devices that are gone or belong to a new claim.
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
		// A device that was missing after its release is a new one, of a claim that may be preparing just now.
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

// abandon frees the samples of destroyed GPU instances.
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

// recreated reports whether a MIG device belongs to another claim than the unprepared one, or to the same claim after a new preparation;
// claims are the claims that request it now. It stores whether the unprepared claim is among them.
func (r *release) recreated(claims []string) bool {
	for _, claim := range claims {
		if claim != r.claim || r.idle {
			return true
		}
	}
	r.idle = len(claims) == 0
	return false
}

// releasing reports whether the samples of one of the MIG devices of a GPU instance are freed because it may be destroyed: it is not
// sampled then.
func (w *worker) releasing(devices []metrics.MIGDevice) bool {
	w.crew.s.mu.Lock()
	defer w.crew.s.mu.Unlock()
	return slices.ContainsFunc(devices, func(d metrics.MIGDevice) bool { return w.crew.s.releases[d.UUID] != nil })
}
