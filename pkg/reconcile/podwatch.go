package reconcile

import (
	"maps"
	"slices"
	"time"
)

// podWatch is what the kubelet has reported of devices in the last goneFor. One list alone proves little: for a while after its start
// the kubelet answers with a list that is empty.
type podWatch struct {
	// seen is when a device was in the list last.
	seen map[string]time.Time
	// proven adds up the times between two successive lists; last is when the last one came, zero after a failure.
	proven time.Duration
	last   time.Time
}

// add takes a list in. It returns all devices that were listed lately, and whether these are all that can be in use.
func (w *podWatch) add(devices []string, now time.Time) (inUse []string, complete bool) {
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

// fail takes in that the kubelet did not answer: it may have been restarted.
func (w *podWatch) fail() { w.proven, w.last = 0, time.Time{} }
