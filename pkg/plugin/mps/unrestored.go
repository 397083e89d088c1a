package mps

import (
	"errors"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// longPause is a pause before another start for which a device is Unrestored. Shorter ones would taint it for moments.
const longPause = 5 * time.Second

// isUnrestored reports whether processes cannot use a device because of an error of its repair, with the present pause between two repairs. A
// service that does not answer concerns the whole node, and a lock that is taken says nothing about the device.
func isUnrestored(err error, pause time.Duration) bool {
	switch {
	case errors.Is(err, gpu.ErrMPSUnavailable), errors.Is(err, errLockTaken):
		return false
	case errors.Is(err, errTooSoon):
		return pause >= longPause
	}
	return true
}

// reportUnrestored reports the GPUs with devices that are not restored, if they are other ones than before.
func (r *Reconciler) reportUnrestored() {
	r.reporting.Lock() // so that the newest report comes last
	defer r.reporting.Unlock()
	var now []gpu.UUID
	r.mu.Lock()
	for _, p := range r.devices {
		if p.unrestored {
			now = append(now, p.gpu)
		}
	}
	r.mu.Unlock()
	slices.Sort(now)
	now = slices.Compact(now)
	if !slices.Equal(now, r.unrestored) {
		r.unrestored = now
		r.Report.Unrestored(now)
	}
}
