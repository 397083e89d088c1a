package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// errNotListed is the fault of a GPU that has answered before and that the driver does not list any more.
var errNotListed = fmt.Errorf("the driver does not list the GPU: %w", gpu.ErrNotFound)

// Remember adds GPUs that another process has inspected in this boot, with their last facts. Until they answer, they are lost. Call it before
// the first Refresh.
func (i *Inventory) Remember(lost []gpu.GPU) {
	i.inspecting <- struct{}{}
	defer func() { <-i.inspecting }()
	for _, g := range lost {
		if _, known := i.seen[g.UUID]; !known {
			i.seen[g.UUID] = g
		}
	}
}

// addLost adds the GPUs that have answered before and do not answer now, with their last facts: a device that vanishes can neither evict pods
// nor be explained. Each is a fault, too. The caller holds inspecting.
func (i *Inventory) addLost(now []gpu.GPU, faults []gpu.Fault) ([]gpu.GPU, []gpu.Fault) {
	lost := i.absent(now)
	slices.SortFunc(lost, byIndex)
	for _, g := range lost {
		g.Lost = true
		if slices.ContainsFunc(now, func(other gpu.GPU) bool { return other.Minor == g.Minor }) {
			g.Minor = gpu.UnknownMinor // after the driver was loaded again, the device node is another GPU's
		}
		now = append(now, g)
		if !slices.ContainsFunc(faults, func(f gpu.Fault) bool { return f.UUID == g.UUID }) {
			faults = append(faults, gpu.Fault{Index: g.Index, UUID: g.UUID, BusID: g.PCI.BusID, Err: errNotListed})
		}
	}
	slices.SortFunc(now, byIndex)
	return now, faults
}

// byIndex orders GPUs. The indices of other GPUs shift when the driver does not list a lost GPU any more, so two may have the same.
func byIndex(a, b gpu.GPU) int {
	lost := func(g gpu.GPU) int {
		if g.Lost {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(lost(a), lost(b)), cmp.Compare(a.UUID, b.UUID))
}

// poll reads the health of the GPUs of a view. It returns an error if the driver has left meanwhile. The caller holds inspecting.
func (i *Inventory) poll(ctx context.Context, next *View) error {
	if i.opts.Polled == nil {
		return nil
	}
	readings := make([]gpu.HealthReading, len(next.Node.GPUs))
	// In parallel, so that a GPU that hangs holds up the others for one deadline at most.
	var all sync.WaitGroup
	for n := range next.Node.GPUs {
		g := &next.Node.GPUs[n]
		if g.Lost {
			readings[n] = gpu.HealthReading{UUID: g.UUID, Err: faultOf(next.Node.Faults, g.UUID)}
			continue
		}
		all.Go(func() { readings[n] = i.read(ctx, i.session, next.Root, g) })
	}
	all.Wait()
	for n := range readings {
		if errors.Is(readings[n].Err, gpu.ErrDriverNotLoaded) {
			return readings[n].Err
		}
	}
	for _, f := range next.Node.Faults {
		if !slices.ContainsFunc(next.Node.GPUs, func(g gpu.GPU) bool { return g.UUID == f.UUID }) {
			readings = append(readings, gpu.HealthReading{UUID: f.UUID, Err: f.Err})
		}
	}
	next.readings = readings
	return nil
}

// read reads the health of a GPU that has just answered.
func (i *Inventory) read(ctx context.Context, session Session, root hostfs.DriverRoot, g *gpu.GPU) gpu.HealthReading {
	reading := session.Health(ctx, g)
	reading.MissingNode = i.missingNode(root, g)
	return reading
}

// faultOf returns the fault of a lost GPU.
func faultOf(faults []gpu.Fault, id gpu.UUID) error {
	for n := range faults {
		if faults[n].UUID == id {
			return faults[n].Err
		}
	}
	return errNotListed
}

// report passes a poll on.
func (i *Inventory) report(poll gpu.HealthPoll) {
	if i.opts.Polled == nil {
		return
	}
	i.reporting.Lock()
	defer i.reporting.Unlock()
	poll.At = i.opts.Clock.Now()
	i.opts.Polled(poll)
}

// Check polls one GPU now, also whether it answers, and does not change the view. An empty UUID means all GPUs; then, and for a GPU that has
// not answered lately, it is a Refresh.
func (i *Inventory) Check(ctx context.Context, id gpu.UUID) {
	view := i.Current()
	n := slices.IndexFunc(view.Node.GPUs, func(g gpu.GPU) bool { return g.UUID == id && !g.Lost })
	session, _ := i.opened.get()
	if n < 0 || session == nil {
		_ = i.Refresh(ctx) // the poll has the error
		return
	}
	reading := gpu.HealthReading{UUID: id, Err: session.Alive(ctx, id)}
	if reading.Err == nil {
		reading = i.read(ctx, session, view.Root, &view.Node.GPUs[n])
	}
	switch {
	case ctx.Err() != nil:
	case errors.Is(reading.Err, gpu.ErrNotFound), errors.Is(reading.Err, gpu.ErrDriverNotLoaded): // the inspections know more
		_ = i.Refresh(ctx)
	default:
		i.report(gpu.HealthPoll{Readings: []gpu.HealthReading{reading}})
	}
}

// watchPause is the time until events of the same session are requested again after an error.
const watchPause = time.Second

// WatchHealth calls report for each event of a GPU, on whichever session is open, until the context ends, and then returns nil. report must not
// block.
func (i *Inventory) WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error {
	for ctx.Err() == nil {
		session, changed := i.opened.get()
		if session == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		watching, stop := context.WithCancel(ctx)
		go func() {
			select {
			case <-changed:
			case <-watching.Done():
			}
			stop()
		}()
		_ = session.WatchHealth(watching, report) // the inspections report a driver that has left
		stop()
		select {
		case <-changed:
		case <-ctx.Done():
		case <-i.opts.Clock.After(watchPause):
		}
	}
	return nil
}
