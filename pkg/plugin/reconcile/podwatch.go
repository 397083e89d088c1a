package reconcile

import (
	"maps"
	"slices"
	"time"
)

// podWatch stores the kubelet's reports about devices in the last goneFor. One list alone proves little: for a while after its start the
// kubelet answers with an empty list.
type podWatch struct {
	// seen is the time of the last list with a device.
	seen map[string]time.Time
	// proven adds up the times between two successive lists; last is the time of the last one, zero after a failure.
	proven time.Duration
	last   time.Time
}

// add adds a list. It returns all recently listed devices, and whether no other device can be in use.
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

// fail stores that the kubelet did not answer: it may have been restarted.
func (w *podWatch) fail() { w.proven, w.last = 0, time.Time{} }
