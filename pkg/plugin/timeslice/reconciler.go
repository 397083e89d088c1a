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
// another interval, the node's is only recorded, and the claim's Unprepare sets it. Each GPU is reconciled by itself: one whose lock is taken, or
// whose driver hangs, delays no other.
type Reconciler struct {
	ReconcilerOptions
	trigger chan struct{}
	// ended gets one entry when setting a GPU's interval has ended, with or without success, since Run last began some.
	ended chan struct{}

	mu   sync.Mutex
	gpus map[gpu.UUID]*progress
}

// progress is a Reconciler's knowledge of a GPU.
type progress struct {
	// inForce is the interval that this process has set or verified; empty: the GPU is reconciled next.
	inForce gpu.Interval
	// setting: the interval is being set.
	setting bool
	// failing is the reason why the interval could not be set; lasting: a retry cannot succeed.
	failing string
	lasting bool
	// next is the time of the next try after a failure, delay is the last wait.
	next  time.Time
	delay time.Duration
}

// due is a GPU whose interval is to be set.
type due struct {
	id       gpu.UUID
	interval gpu.Interval
	*progress
}

// ReconcilerOptions are the dependencies of a Reconciler.
type ReconcilerOptions struct {
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
func NewReconciler(options ReconcilerOptions) *Reconciler {
	return &Reconciler{ReconcilerOptions: options, gpus: map[gpu.UUID]*progress{}, trigger: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
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
	var setting sync.WaitGroup
	defer setting.Wait()
	for all := true; ctx.Err() == nil; {
		changed := r.Changed()
		for _, d := range r.due(all) {
			setting.Go(func() {
				r.reconcile(ctx, d)
				select {
				case r.ended <- struct{}{}:
				default:
				}
			})
		}
		all = r.sleep(ctx, changed)
	}
}

// sleep returns when something has changed, with true, or when a retry may be due.
func (r *Reconciler) sleep(ctx context.Context, changed <-chan struct{}) (all bool) {
	timer := time.NewTimer(r.wait())
	defer timer.Stop()
	select {
	case <-changed:
		return true
	case <-r.trigger:
		return true
	case <-r.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// wait is the time until the first retry.
func (r *Reconciler) wait() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := retryMost
	for _, p := range r.gpus {
		if p.failing != "" && !p.lasting && !p.setting {
			wait = min(wait, max(time.Until(p.next), 0))
		}
	}
	return wait
}

// Reconcile sets the configured intervals that are not in force, one GPU after the other. It reports whether a retry may succeed although
// nothing changes.
func (r *Reconciler) Reconcile(ctx context.Context) (retry bool) {
	for _, d := range r.due(true) {
		retry = r.reconcile(ctx, d) || retry
	}
	return retry
}

// due returns the GPUs whose interval is not in force: all, or those whose retry is due. Their intervals are to be set now.
func (r *Reconciler) due(all bool) (list []due) {
	wanted, err := r.Wanted()
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, gpu.ErrDriverNotLoaded) {
		clear(r.gpus)
	}
	now := time.Now()
	if err != nil { // nothing is attempted before that changes, or the next retry
		for _, p := range r.gpus {
			p.next = now.Add(p.delay)
		}
		return nil
	}
	maps.DeleteFunc(r.gpus, func(id gpu.UUID, _ *progress) bool { _, has := wanted[id]; return !has })
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		p := r.gpus[id]
		if p == nil {
			p = &progress{}
			r.gpus[id] = p
		}
		if p.setting || p.inForce == wanted[id] || !all && (p.lasting || now.Before(p.next)) {
			continue
		}
		p.setting = true
		list = append(list, due{id, wanted[id], p})
	}
	return list
}

// reconcile sets the interval of a GPU, and reports whether a retry may succeed. The configuration may change while it waits for the lock.
func (r *Reconciler) reconcile(ctx context.Context, d due) (retry bool) {
	configured := true
	err := r.WithGPULock(ctx, d.id, func(ctx context.Context) error {
		wanted, err := r.Wanted()
		interval, has := wanted[d.id]
		if configured = err == nil && has; !configured {
			return nil
		}
		d.interval = interval
		return r.set(ctx, d.id, interval)
	})
	_, unsupported := errors.AsType[*gpu.UnsupportedError](err)
	if r.note(ctx, d, configured, err, unsupported) {
		r.Failed(d.id, d.interval, err)
	}
	return err != nil && !unsupported
}

// note records the result of setting an interval, and reports whether a failure or its cause is new.
func (r *Reconciler) note(ctx context.Context, d due, configured bool, err error, lasting bool) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d.setting, d.lasting = false, lasting
	if err == nil {
		if configured {
			d.inForce = d.interval
		}
		d.failing, d.delay, d.next = "", 0, time.Time{}
		return false
	}
	d.inForce = ""
	d.delay = min(max(2*d.delay, retryFirst), retryMost)
	d.next = time.Now().Add(d.delay)
	if ctx.Err() != nil {
		return false
	}
	cause := fmt.Sprintf("%s: %v", d.interval, err)
	news = d.failing != cause
	d.failing = cause
	return news
}

// Failing counts the GPUs whose configured interval could not be set.
func (r *Reconciler) Failing() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	failing := 0
	for _, p := range r.gpus {
		if p.failing != "" {
			failing++
		}
	}
	return failing
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
