package inventory

import (
	"context"
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// gpus lists the GPUs with the instances that an administrator created. Instances of claims come and go and are left out: the claims'
// records name them. The caller holds inspecting.
//
// A claim's instance exists only while a record names it. So records are read between two inspections, and again after them: an instance
// that both inspections show, and that no record names at either time, is an administrator's. The second reading finds a claim that created
// an instance between the inspections at the placement of another instance: IDs and UUIDs derive from the placement, so the two are
// indistinguishable. An instance that only the second inspection shows may belong to a claim that was prepared in between; the next
// inspection decides.
func (i *Inventory) gpus(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error) {
	gpus, faults, err := i.session.GPUs(ctx)
	if err != nil || !slices.ContainsFunc(gpus, func(g gpu.GPU) bool { return g.MIG != nil && len(g.MIG.Instances) > 0 }) {
		return slices.Clone(gpus), faults, err
	}
	owned, unread := i.owned()
	before := map[gpu.UUID][]gpu.Instance{}
	for n := range gpus {
		if gpus[n].MIG != nil {
			before[gpus[n].UUID] = gpus[n].MIG.Instances
		}
	}
	if gpus, faults, err = i.session.GPUs(ctx); err != nil {
		return nil, nil, err
	}
	gpus = slices.Clone(gpus)
	shown := func(id gpu.UUID, instance *gpu.Instance) bool {
		return slices.ContainsFunc(before[id], func(earlier gpu.Instance) bool { return same(&earlier, instance) })
	}
	if unread == nil && keep(gpus, func(id gpu.UUID, instance *gpu.Instance) bool { return !owned(id, instance) && shown(id, instance) }) {
		if owned, unread = i.owned(); unread == nil {
			keep(gpus, func(id gpu.UUID, instance *gpu.Instance) bool { return !owned(id, instance) })
		}
	}
	if unread != nil {
		i.keepKnown(gpus)
	}
	return gpus, faults, nil
}

// keep removes all instances but the wanted ones from the GPUs, and returns whether any are left. The data of the session is not changed.
func keep(gpus []gpu.GPU, wanted func(id gpu.UUID, instance *gpu.Instance) bool) (left bool) {
	for n := range gpus {
		g := &gpus[n]
		if g.MIG == nil {
			continue
		}
		mig := *g.MIG
		mig.Instances = slices.DeleteFunc(slices.Clone(mig.Instances), func(instance gpu.Instance) bool { return !wanted(g.UUID, &instance) })
		if len(mig.Instances) == 0 {
			mig.Instances = nil // as if there had never been one: claims that come and go do not change the view
		}
		left = left || len(mig.Instances) > 0
		g.MIG = &mig
	}
	return left
}

// keepKnown removes all instances that are not in the last view from the GPUs.
func (i *Inventory) keepKnown(gpus []gpu.GPU) {
	for n := range gpus {
		if g := &gpus[n]; g.MIG != nil {
			mig := *g.MIG
			mig.Instances = i.known(g.UUID)
			g.MIG = &mig
		}
	}
}

// owned reads which instances claims own.
func (i *Inventory) owned() (Owned, error) {
	if i.opts.Owned == nil {
		return func(gpu.UUID, *gpu.Instance) bool { return false }, nil
	}
	return i.opts.Owned()
}

// known lists the instances of a GPU in the last view.
func (i *Inventory) known(id gpu.UUID) []gpu.Instance {
	for _, g := range i.Current().Node.GPUs {
		if g.UUID == id && g.MIG != nil {
			return g.MIG.Instances
		}
	}
	return nil
}

// same reports whether two inspections show an equal instance. That may be one instance, or two that existed one after the other.
func same(a, b *gpu.Instance) bool {
	return a.ID == b.ID && a.Profile == b.Profile && a.Placement == b.Placement && slices.Equal(a.Compute, b.Compute)
}
