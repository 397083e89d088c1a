package inventory

import (
	"context"
	"errors"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// ErrReleased is the error of polls while the driver is released for a reset.
var ErrReleased = errors.New("GPUs are released for maintenance")

// Check polls one GPU; an empty ID polls all.
func (i *Inventory) Check(ctx context.Context, id gpu.UUID) {
	if id == "" {
		_ = i.Refresh(ctx) // the error is in the view
		return
	}
	i.poll(ctx, i.Current(), id)
}

// Remember adds the facts of GPUs that were lost when another process ran.
func (i *Inventory) Remember(lost []gpu.GPU) {
	for _, g := range lost {
		i.seen[g.UUID] = g
	}
}

// WatchHealth reports the events of the open session.
func (i *Inventory) WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error {
	if session := i.open.Load(); session != nil {
		return (*session).WatchHealth(ctx, report)
	}
	<-ctx.Done()
	return nil
}

// poll calls Polled with readings of a view's GPUs, or of one of them.
func (i *Inventory) poll(ctx context.Context, v *View, only gpu.UUID) {
	if i.opts.Polled == nil {
		return
	}
	p := gpu.HealthPoll{At: i.opts.Clock.Now(), Whole: only == "", Err: v.Err}
	for n := range v.Node.GPUs {
		g := &v.Node.GPUs[n]
		if only != "" && g.UUID != only || i.session == nil {
			continue
		}
		reading := i.session.Health(ctx, g)
		reading.MissingNode = g.MissingNode
		p.Readings = append(p.Readings, reading)
	}
	i.opts.Polled(p)
}
