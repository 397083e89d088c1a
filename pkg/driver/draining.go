package driver

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// draining is how far this process is in bringing GPUs to what they should be offered as.
type draining struct {
	// leading: this process is the one that publishes.
	leading bool
	// saved is what outlives it.
	saved Saved
	// news: another process has saved something else since followed was called.
	news bool
	// list is the list of claims that is being read, nil while none is, and page when the next page of one may be read.
	list *claimList
	page time.Time
}

// longest is how long Run may wait.
func (o *Offering) longest() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.drain.leading || len(o.going.changes) == 0 {
		return rereadMax
	}
	if page := time.Until(o.drain.page); page > 0 {
		return min(page, drainLook)
	}
	return drainLook
}

// Lead tells whether this process is the one that publishes. Only then GPUs change what they are offered as. What the process before it
// had come to is what they are offered as now.
func (o *Offering) Lead(leading bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drain.leading, o.drain.list = leading, nil
	if leading {
		if err := o.ports.Saved.Sweep(); err != nil {
			klog.Background().Error(err, "Half of a file is left")
		}
		o.recallLocked()
		o.nudge()
	}
}

// recall takes up what was saved.
func (o *Offering) recall() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recallLocked()
}

func (o *Offering) recallLocked() {
	saved, err := o.ports.Saved.Load()
	if err != nil {
		o.tell(advice{reason: events.LayoutStateUnreadable}, "GPUs that nobody uses may be offered otherwise at once: "+err.Error())
		return
	}
	o.drain.saved = saved
	if saved.GPUs == nil || saved.same(Saved{GPUs: o.going.current, Flags: saved.Flags}) {
		return // nobody else has changed anything
	}
	o.seen = nil
	maps.Copy(o.going.current, saved.GPUs)
}

// advance brings GPUs to what they should be offered as, each of them when it is free; true when something else is on offer now. What
// keeps one of them delays no other.
func (o *Offering) advance(ctx context.Context) bool {
	if !o.due(ctx) {
		return false
	}
	states, err := o.states()
	if err != nil {
		o.failed(ctx, states.all, err)
		return false
	}
	if len(states.untainted) > 0 {
		if err := o.look(ctx); err != nil {
			o.failed(ctx, states.untainted, err)
		}
	}
	settled, about, err := o.readClaims(ctx, states.ready)
	if err != nil {
		o.failed(ctx, about, err)
	}
	if settled {
		o.lookAgain(ctx)
	}
	return settled
}

// failed puts off what could not be found out or done.
func (o *Offering) failed(ctx context.Context, ids []gpu.UUID, err error) {
	klog.FromContext(ctx).Error(err, "GPUs are not offered otherwise yet")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.going.later(ids, false, time.Now())
}

// lookAgain sees the GPUs as they are before what they offer now is published: the last slice may have come and gone since they were seen,
// and who is given the whole GPU next has to know of the MIG mode that it left.
func (o *Offering) lookAgain(ctx context.Context) {
	if err := o.ports.Inventory.Refresh(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "GPUs that are offered otherwise were not looked at")
	}
}

// due tells whether there is something to do, and saves what is offered.
func (o *Offering) due(ctx context.Context) bool {
	_, _, err := o.Now() // what the configuration wants of the GPUs that are there now
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.drain.leading || err != nil {
		return false
	}
	if !o.drain.saved.same(Saved{GPUs: o.going.current, Flags: o.flags()}) {
		if err := o.save(o.going.current); err != nil {
			klog.FromContext(ctx).Error(err, "A restart will not know what GPUs were offered as")
		}
	}
	now := time.Now()
	o.remind(now)
	asking := len(o.going.where(func(c *change) bool { return c.asking(now) })) > 0
	if !asking && o.drain.list == nil {
		o.drain.page = time.Time{} // the next question waits for this node's moment
	}
	return asking
}

// states are the GPUs that may be asked about now, by how far they are.
type states struct {
	// all are those that change. Of untainted and ready there are none, unless about one of them the API server may be asked.
	all []gpu.UUID
	// untainted are those whose taints are waited for.
	untainted []gpu.UUID
	// ready are those that have had them long enough and no record of what leaves.
	ready []gpu.UUID
}

// states sorts the GPUs that change. With an error it knows of none how far it is.
func (o *Offering) states() (found states, err error) {
	records, err := o.ports.Records()
	o.mu.Lock()
	defer o.mu.Unlock()
	found.all = o.going.where(func(*change) bool { return true })
	if err != nil {
		return found, err
	}
	now := time.Now()
	idle := func(ids []gpu.UUID) bool {
		return !slices.ContainsFunc(ids, func(id gpu.UUID) bool { return o.going.changes[id].asking(now) })
	}
	found.untainted = o.going.where(func(c *change) bool { return c.since.IsZero() })
	if idle(found.untainted) {
		found.untainted = nil
	}
	found.ready = slices.DeleteFunc(o.going.unrecorded(records), func(id gpu.UUID) bool { return !o.going.due(id, now) })
	if idle(found.ready) {
		found.ready = nil
	}
	return found, nil
}

// look notes which taints the API server has.
func (o *Offering) look(ctx context.Context) error {
	published, err := o.ports.Tainted(ctx)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.going.taint(published, !o.untaints, time.Now())
	return nil
}

// save makes a layout outlive the process, and the settings.
func (o *Offering) save(layout gpu.Layout) error {
	saved := Saved{GPUs: maps.Clone(layout), Flags: o.flags()}
	if err := o.ports.Saved.Save(saved); err != nil {
		o.drain.saved = Saved{} // it may be saved all the same, so what is on offer is to be saved again
		return err
	}
	o.drain.saved = saved
	return nil
}
