package reconcile

import (
	"maps"
	"slices"
	"time"
)

// watch is what the kubelet has said of devices in the last goneFor. One list alone proves little: for a while after its start the
// kubelet answers with a list that is empty.
type watch struct {
	// seen tells when a device was in the list last.
	seen map[string]time.Time
	// proven adds up the times between two lists that came one after the other; last is when the last one came, zero after a
	// silence.
	proven time.Duration
	last   time.Time
}

// hear takes a list in. It returns all devices that were listed lately, and whether that is all that can be in use.
func (w *watch) hear(devices []string, now time.Time) (inUse []string, sure bool) {
	if gap := now.Sub(w.last); !w.last.IsZero() && gap <= longestGap {
		w.proven += gap
	}
	w.last = now
	for _, device := range devices {
		w.seen[device] = now
	}
	maps.DeleteFunc(w.seen, func(_ string, at time.Time) bool { return now.Sub(at) > goneFor })
	return slices.Sorted(maps.Keys(w.seen)), w.proven >= goneFor
}

// miss notes that the kubelet did not answer: it may have been started anew.
func (w *watch) miss() { w.proven, w.last = 0, time.Time{} }
