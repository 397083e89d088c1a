package driver

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// draining is how far this process is in bringing GPUs to what they should be offered as.
type draining struct {
	// leading: this process is the one that publishes.
	leading bool
	// saved is what outlives it.
	saved gpu.Layout
	// next is when the API server may be asked again, and wait how long that was put off.
	next time.Time
	wait time.Duration
}

// What was found in use, or could not be found out, is asked for again after askFirst, twice as long each time up to askMax: a
// question reads all claims of the cluster.
const (
	askFirst = time.Second
	askMax   = 30 * time.Second
)

// Lead tells whether this process is the one that publishes. Only then GPUs change what they are offered as. What the process before it
// had come to is what they are offered as now.
func (o *Offering) Lead(leading bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drain.leading = leading
	if leading {
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
		o.tell("LayoutUnread", "GPUs that nobody uses may be offered otherwise at once: "+err.Error())
		return
	}
	o.drain.saved = saved
	if saved == nil || maps.EqualFunc(saved, o.going.current, gpu.Offer.Equal) {
		return // nobody else has changed anything
	}
	o.seen = nil
	maps.Copy(o.going.current, saved)
}

// advance brings GPUs to what they should be offered as, each of them when it is free; true when something else is on offer now.
func (o *Offering) advance(ctx context.Context) bool {
	if !o.due(ctx) {
		return false
	}
	untainted, ready, err := o.states()
	if err == nil && untainted {
		err = o.look(ctx)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "GPUs are not offered otherwise yet")
		o.later()
		return false
	}
	if len(ready) == 0 {
		return false
	}
	allocated, err := o.ports.Allocated(ctx)
	if err == nil {
		var settled bool
		if settled, err = o.settle(ready, allocated); settled && err == nil {
			return true
		}
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "GPUs are not offered otherwise yet")
	}
	o.later()
	return false
}

// due tells whether there is something to do, and saves what is offered.
func (o *Offering) due(ctx context.Context) bool {
	_, _, err := o.Now() // what the configuration wants of the GPUs that are there now
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.drain.leading || err != nil {
		return false
	}
	if !maps.EqualFunc(o.drain.saved, o.going.current, gpu.Offer.Equal) {
		if err := o.save(o.going.current); err != nil {
			klog.FromContext(ctx).Error(err, "A restart will not know what GPUs were offered as")
		}
	}
	return len(o.going.changes) > 0 && !time.Now().Before(o.drain.next)
}

// later puts the next question off.
func (o *Offering) later() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drain.wait = min(max(2*o.drain.wait, askFirst), askMax)
	o.drain.next = time.Now().Add(o.drain.wait)
}

// states tells whether taints are still waited for, and which GPUs have had them long enough and no record of what leaves.
func (o *Offering) states() (untainted bool, ready []gpu.UUID, err error) {
	records, err := o.ports.Records()
	if err != nil {
		return false, nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	untainted = len(o.going.where(func(c *change) bool { return c.since.IsZero() })) > 0
	now := time.Now()
	ready = slices.DeleteFunc(o.going.unrecorded(records), func(id gpu.UUID) bool { return !o.going.due(id, now) })
	return untainted, ready, nil
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

// settle offers GPUs as they should be, of which no allocated device leaves; false when there are none. It is saved first: a restart that
// found the old offers would take them back.
func (o *Offering) settle(ready []gpu.UUID, allocated map[gpu.PoolDevice]bool) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := maps.Clone(o.going.current)
	settled := false
	for _, id := range ready {
		if c, changing := o.going.changes[id]; changing && !overlap(c.leaving, allocated) {
			next[id], settled = c.to, true
		}
	}
	if !settled {
		return false, nil
	}
	if err := o.save(next); err != nil {
		return false, err
	}
	o.going.current, o.seen = next, nil
	o.drain.wait = 0
	return true, nil
}

// save makes a layout outlive the process.
func (o *Offering) save(layout gpu.Layout) error {
	if err := o.ports.Saved.Save(layout); err != nil {
		return err
	}
	o.drain.saved = maps.Clone(layout)
	return nil
}
