package inventory

import (
	"context"
	"fmt"
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Partitioning returns the open driver, gpu.ErrDriverNotLoaded while there is none.
func (i *Inventory) Partitioning() (Partitioning, error) {
	session := i.open.Load()
	if session == nil {
		return nil, fmt.Errorf("cutting a GPU: %w", gpu.ErrDriverNotLoaded)
	}
	return *session, nil
}

// gpus lists the GPUs with the instances that an administrator made. Those of claims come and go and are left out: claims know
// them. The caller holds looking.
//
// A claim's instance is there only while a record names it. So records are read between two looks: what both looks show and no
// record names is an administrator's. What only the second shows may be of a claim that came in between; the next look tells.
func (i *Inventory) gpus(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error) {
	gpus, faults, err := i.session.GPUs(ctx)
	if err != nil {
		return nil, nil, err
	}
	gpus = slices.Clone(gpus)
	if !slices.ContainsFunc(gpus, func(g gpu.GPU) bool { return g.MIG != nil && len(g.MIG.Instances) > 0 }) {
		return gpus, faults, nil
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
	for n := range gpus {
		g := &gpus[n]
		if g.MIG == nil {
			continue
		}
		mig := *g.MIG
		if unread != nil {
			mig.Instances = i.known(g.UUID)
		} else {
			mig.Instances = slices.DeleteFunc(slices.Clone(mig.Instances), func(instance gpu.Instance) bool {
				return owned(g.UUID, &instance) || !slices.ContainsFunc(before[g.UUID], func(earlier gpu.Instance) bool {
					return same(&earlier, &instance)
				})
			})
		}
		if len(mig.Instances) == 0 {
			mig.Instances = nil // as where there never was one: claims that come and go are no news
		}
		g.MIG = &mig
	}
	return gpus, faults, nil
}

// owned asks who owns instances.
func (i *Inventory) owned() (Owned, error) {
	if i.opts.Owned == nil {
		return func(gpu.UUID, *gpu.Instance) bool { return false }, nil
	}
	return i.opts.Owned()
}

// known lists the instances of a GPU that the last view had.
func (i *Inventory) known(id gpu.UUID) []gpu.Instance {
	for _, g := range i.Current().Node.GPUs {
		if g.UUID == id && g.MIG != nil {
			return g.MIG.Instances
		}
	}
	return nil
}

// same tells whether two looks have shown the same instance: ids and placements are used again, UUIDs are not.
func same(a, b *gpu.Instance) bool {
	return a.ID == b.ID && a.Profile == b.Profile && a.Placement == b.Placement && slices.Equal(a.Compute, b.Compute)
}
