package timeslice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Reconciler sets the time-slice intervals of the node's configuration. At most one process of a node runs one.
//
// It sets an interval when the configuration changes, and once after the process started, because a record does not prove that the
// interval is still in force: a driver that was loaded again has lost it, and a driver without persistence mode may lose it when the
// last client, for instance the previous plugin, closes the GPU. Reading it costs a run of the tool as well. While a claim has set
// another interval, the node's is only recorded, and the claim's Unprepare sets it.
type Reconciler struct {
	ReconcilerPorts
	// inForce are the intervals that this process has set or verified; a GPU that is missing is reconciled next.
	inForce map[gpu.UUID]gpu.Interval
	trigger chan struct{}

	mu sync.Mutex
	// failing are the GPUs whose interval could not be set, with the cause.
	failing map[gpu.UUID]string
}

// ReconcilerPorts are the dependencies of a Reconciler.
type ReconcilerPorts struct {
	Tool  Tool
	Store *Store
	// WithGPULock calls do with the GPU's lock held, so that no claim on that GPU is prepared or unprepared meanwhile.
	WithGPULock func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error
	// Wanted returns the configured interval of every GPU that responds and is not in MIG mode. A GPU that was missing for a while
	// is set again. An error means that the intervals are unknown for now; with gpu.ErrDriverNotLoaded all GPUs have lost theirs.
	Wanted func() (map[gpu.UUID]gpu.Interval, error)
	// Changed returns a channel that is closed when the result of Wanted may have changed since the call.
	Changed func() <-chan struct{}
	// Failed reports an interval that could not be set, once per GPU until it is set or the cause changes. It must not block.
	Failed func(id gpu.UUID, interval gpu.Interval, err error)
}

// NewReconciler returns a reconciler that has yet to set every configured interval.
func NewReconciler(ports ReconcilerPorts) *Reconciler {
	return &Reconciler{ReconcilerPorts: ports, inForce: map[gpu.UUID]gpu.Interval{}, failing: map[gpu.UUID]string{}, trigger: make(chan struct{}, 1)}
}

// A transient failure is retried after retryFirst, with exponential back-off up to retryMost.
const (
	retryFirst = 10 * time.Second
	retryMost  = 5 * time.Minute
)

// Trigger makes Run reconcile now. It does not block.
func (r *Reconciler) Trigger() {
	select {
	case r.trigger <- struct{}{}:
	default:
	}
}

// Run reconciles until the context is done.
func (r *Reconciler) Run(ctx context.Context) {
	delay := retryFirst
	for {
		changed := r.Changed()
		var retry <-chan time.Time
		if r.Reconcile(ctx) {
			retry, delay = time.After(delay), min(2*delay, retryMost)
		} else {
			delay = retryFirst
		}
		select {
		case <-changed:
		case <-r.trigger:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}

// Reconcile sets the configured intervals that are not in force, one GPU at a time. It reports whether a retry may succeed although
// nothing changes.
func (r *Reconciler) Reconcile(ctx context.Context) (retry bool) {
	wanted, err := r.Wanted()
	if errors.Is(err, gpu.ErrDriverNotLoaded) {
		clear(r.inForce)
		r.dropFailures(nil)
	}
	if err != nil {
		return false
	}
	maps.DeleteFunc(r.inForce, func(id gpu.UUID, _ gpu.Interval) bool { _, has := wanted[id]; return !has })
	r.dropFailures(wanted)
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		interval := wanted[id]
		if r.inForce[id] == interval || ctx.Err() != nil {
			continue
		}
		err := r.WithGPULock(ctx, id, func(ctx context.Context) error { return r.set(ctx, id, interval) })
		switch _, unsupported := errors.AsType[*gpu.UnsupportedError](err); {
		case err == nil:
			r.inForce[id] = interval
			r.clearFailure(id)
			continue
		case !unsupported:
			retry = true
		}
		delete(r.inForce, id)
		if ctx.Err() == nil && r.recordFailure(id, interval, err) {
			r.Failed(id, interval, err)
		}
	}
	return retry
}

// Failing counts the GPUs whose configured interval could not be set.
func (r *Reconciler) Failing() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failing)
}

// recordFailure remembers why an interval could not be set, and reports whether the failure or its cause is new.
func (r *Reconciler) recordFailure(id gpu.UUID, interval gpu.Interval, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	cause := fmt.Sprintf("%s: %v", interval, err)
	changed := r.failing[id] != cause
	r.failing[id] = cause
	return changed
}

// clearFailure forgets the failure of a GPU whose interval is in force.
func (r *Reconciler) clearFailure(id gpu.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failing, id)
}

// dropFailures forgets the failures of GPUs without a configured interval.
func (r *Reconciler) dropFailures(wanted map[gpu.UUID]gpu.Interval) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.failing, func(id gpu.UUID, _ string) bool { _, has := wanted[id]; return !has })
}

// set sets one GPU's interval, or only records it for Unprepare while a claim has set another. The GPU's lock is held.
func (r *Reconciler) set(ctx context.Context, id gpu.UUID, interval gpu.Interval) error {
	before, err := r.Store.get(id)
	if err != nil {
		return err
	}
	if before.claim != "" {
		return r.Store.setNode(id, interval)
	}
	if err := r.Store.setClaim(id, ""); err != nil { // removes the file of an earlier boot
		return err
	}
	if interval == gpu.IntervalDefault && before.node == "" {
		return r.Store.setNode(id, interval)
	}
	if interval != gpu.IntervalDefault {
		if err := r.Store.setNode(id, interval); err != nil {
			return err
		}
	}
	if err := r.Tool.SetTimeslice(ctx, id, interval); err != nil {
		if refused(err) {
			err = errors.Join(err, r.Store.setNode(id, before.node))
		}
		return fmt.Errorf("setting the time-slice interval of the node's configuration: %w", err)
	}
	return r.Store.setNode(id, interval)
}
