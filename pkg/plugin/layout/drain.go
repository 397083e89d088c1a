package layout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// drain brings the GPUs of a node whose process leads to their desired layouts, and saves the layouts.
type drain struct {
	*worker
	// leading: this process is the one that publishes.
	leading bool
	archive *archive
	pages   pages
}

// pause is the time until a check is due.
func (d *drain) pause(now time.Time) time.Duration {
	if !d.leading || len(d.state.rollout.changes) == 0 {
		return roundInterval
	}
	if page := d.pages.next.Sub(now); page > 0 {
		return min(page, drainInterval)
	}
	return drainInterval
}

// lead sets whether this process leads. The saved layout of the process before it becomes the current one.
func (d *drain) lead(leading bool) {
	d.leading, d.pages.list = leading, nil
	if !leading {
		return
	}
	if err := d.options.Store.Sweep(); err != nil {
		klog.Background().Error(err, "An unfinished file of the layout was not removed")
	}
	d.archive.recall()
}

// advance brings GPUs to their desired layouts, each when its leaving devices are released. GPUs do not wait for each other.
func (d *drain) advance(ctx context.Context) {
	if !d.due(ctx) {
		return
	}
	found, err := d.progress()
	if err != nil {
		d.failed(ctx, found.all, err)
		return
	}
	if len(found.untainted) > 0 {
		if err := d.checkTaints(ctx); err != nil {
			d.failed(ctx, found.untainted, err)
		}
	}
	changed, about, err := d.readClaims(ctx, found.ready)
	if err != nil {
		d.failed(ctx, about, err)
	}
	if !changed {
		return
	}
	// The GPUs are inspected before the new layout is published: the last MIG device may have been created and destroyed since the last
	// inspection, and the plan of the next claim for the whole GPU depends on the remaining MIG mode.
	if err := d.options.Inventory.Refresh(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "GPUs whose layout changes were not inspected")
	}
}

// failed postpones the GPUs whose check or change failed.
func (d *drain) failed(ctx context.Context, ids []gpu.UUID, err error) {
	klog.FromContext(ctx).Error(err, "GPU layouts are not changed yet")
	d.state.rollout.Defer(ids, false, time.Now())
}

// due reports whether a check is due, and saves the advertised layouts.
func (d *drain) due(ctx context.Context) bool {
	if !d.leading || d.output.latest.Load().Err != nil {
		return false
	}
	r := d.state.rollout
	if !d.archive.saved.same(d.archive.of(r.current)) {
		if err := d.archive.save(r.current); err != nil {
			klog.FromContext(ctx).Error(err, "A restart will not know what GPUs are advertised as")
		}
	}
	now := time.Now()
	d.remind(now)
	due := len(r.changes.where(func(c *change) bool { return c.check.Due(now) })) > 0
	if !due && d.pages.list == nil {
		d.pages.next = time.Time{} // the next check waits for this node's page slot
	}
	return due
}

// progress groups the GPUs whose layout changes by the state of the change.
type progress struct {
	// all are the GPUs that change. untainted and ready are empty, unless a check of one of their GPUs is due.
	all []gpu.UUID
	// untainted are the GPUs whose taints are not stored yet.
	untainted []gpu.UUID
	// ready are the GPUs that await release and whose leaving devices are named by no record.
	ready []gpu.UUID
}

// progress sorts the GPUs that change. With an error the states of all of them are unknown.
func (d *drain) progress() (found progress, err error) {
	r := d.state.rollout
	found.all = r.changes.where(func(*change) bool { return true })
	records, err := d.options.Records()
	if err != nil {
		return found, err
	}
	now := time.Now()
	ifDue := func(ids []gpu.UUID) []gpu.UUID {
		if slices.ContainsFunc(ids, func(id gpu.UUID) bool { return r.changes[id].check.Due(now) }) {
			return ids
		}
		return nil
	}
	found.untainted = ifDue(r.changes.where(func(c *change) bool { return c.tainted.IsZero() }))
	found.ready = ifDue(slices.DeleteFunc(r.Unrecorded(records), func(id gpu.UUID) bool { return r.Phase(id, now) != AwaitingRelease }))
	return found, nil
}

// checkTaints records the taints that the API server has stored.
func (d *drain) checkTaints(ctx context.Context) error {
	stored, err := call(ctx, d.worker, d.options.API.Tainted)
	if err != nil {
		return fmt.Errorf("reading the taints of this node's devices: %w", err)
	}
	d.state.rollout.Tainted(stored, d.state.capabilities.taints != Unsupported, time.Now())
	return nil
}
