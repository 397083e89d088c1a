package mig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Undo removes the device that Do made, in whatever state it is, and sees that it is gone. Nothing there, and another instance in its
// place, is no error. gpu.ErrInUse: a process still runs on it, or a sample of it was not freed in time.
func (s Step) Undo(ctx context.Context, step checkpoint.Step) error {
	wanted, driver, err := s.open(step)
	if err != nil {
		return err
	}
	m, err := decodeMade(step)
	if err != nil || m.lost(s.load()) {
		return err
	}
	ours, err := inspect(ctx, driver, step.Target, wanted, m, step.Whole)
	if err != nil || ours == nil {
		return err
	}
	until := time.Now().Add(samplesFreed)
	for _, c := range ours.Compute {
		err := destroyed(ctx, until, func() error { return driver.DestroyComputeInstance(ctx, step.Target, ours.ID, c.ID) })
		if err != nil {
			return fmt.Errorf("removing MIG device %s: %w", c.UUID, err)
		}
	}
	if err := destroyed(ctx, until, func() error { return driver.DestroyInstance(ctx, step.Target, ours.ID) }); err != nil {
		return fmt.Errorf("removing GPU instance %d (%s): %w", ours.ID, wanted.Name, err)
	}
	left, err := driver.Instance(ctx, step.Target, ours.ID, "")
	if left != nil { // or another owner's with the same id
		left, err = search(ctx, driver, step.Target, wanted, m, false)
	}
	if err != nil {
		return err
	}
	if left != nil && len(left.Compute) == 0 { // ours has none any more
		return fmt.Errorf("removing GPU instance %d (%s): the driver says it is done, and it is still there: %w", left.ID, wanted.Name, gpu.ErrInUse)
	}
	return nil
}

// prism-exporter frees its samples of an instance as soon as the record says that the instance is released, which takes it a few
// milliseconds. A caller's own retry comes 250 ms later, for which the pod would wait.
const (
	samplesFreed = 50 * time.Millisecond
	samplesRetry = time.Millisecond
)

// destroyed destroys something, and tries again while it is in use, until that time or the end of the context. Nothing to remove is a
// success.
func destroyed(ctx context.Context, until time.Time, destroy func() error) error {
	for {
		err := destroy()
		switch {
		case errors.Is(err, gpu.ErrNotFound):
			return nil
		case !errors.Is(err, gpu.ErrInUse) || !time.Now().Before(until):
			return err
		}
		select {
		case <-time.After(samplesRetry):
		case <-ctx.Done():
			return err
		}
	}
}

// inspect finds the instance that the step made, nil if it is not there. A whole one costs a few calls however many others there are.
// Whole: the step's instance contains its compute instance, or is gone.
func inspect(ctx context.Context, driver gpu.MIGDriver, id gpu.UUID, wanted claim.MIG, m *made, whole bool) (*gpu.Instance, error) {
	if m == nil || m.UUID == "" {
		return search(ctx, driver, id, wanted, m, whole)
	}
	instance, err := driver.Instance(ctx, id, m.GPUInstance, m.UUID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("finding MIG device %s on GPU %s: %w", m.UUID, id, err)
	case instance != nil && len(instance.Compute) > 0:
		return find([]gpu.Instance{*instance}, wanted, m, whole), nil
	}
	return search(ctx, driver, id, wanted, m, whole)
}

// search is inspect in whatever state the MIG device is.
func search(ctx context.Context, driver gpu.MIGDriver, id gpu.UUID, wanted claim.MIG, m *made, whole bool) (*gpu.Instance, error) {
	instances, err := driver.Instances(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("finding GPU instance %s on GPU %s: %w", wanted.Name, id, err)
	}
	return find(instances, wanted, m, whole), nil
}

// find reports which instance the step made. It sits at the step's placement, which was free before. If the made instance is known, it
// has that id and contains just that compute instance, or none if that may be gone: anything else was made later and is not the step's.
// Ids and UUIDs come from the placement, so an instance with all of these the same counts as the step's as long as a record names it.
func find(instances []gpu.Instance, wanted claim.MIG, m *made, whole bool) *gpu.Instance {
	for i := range instances {
		instance := &instances[i]
		if instance.Profile != wanted.Profile || instance.Placement != wanted.Placement {
			continue
		}
		if m == nil || m.matches(instance, whole) {
			return instance
		}
		return nil
	}
	return nil
}

// matches returns whether an instance at the step's placement can be the one that it has made.
func (m *made) matches(instance *gpu.Instance, whole bool) bool {
	switch {
	case instance.ID != m.GPUInstance:
		return false
	case m.UUID == "":
		return true
	case len(instance.Compute) == 0:
		return !whole
	case len(instance.Compute) > 1 || m.Fills && !instance.Filled():
		return false
	}
	return instance.Compute[0].ID == m.ComputeInstance && instance.Compute[0].UUID == m.UUID
}

// Owned reports which instances the records name: the made ones, and the ones about to be made. Load is the present load of the driver,
// empty if it is not known.
func Owned(records []*checkpoint.Record, bootID, load string) func(id gpu.UUID, instance *gpu.Instance) bool {
	type owned struct {
		wanted claim.MIG
		made   *made
		whole  bool
	}
	byGPU := map[gpu.UUID][]owned{}
	for _, r := range records {
		for i := range r.Steps {
			step := &r.Steps[i]
			if step.Kind != claim.StepMIG || r.BootID != bootID {
				continue
			}
			wanted, err := claim.ParseMIG(step.Args)
			m, err2 := decodeMade(*step)
			if err == nil && err2 == nil && !m.lost(load) {
				byGPU[step.Target] = append(byGPU[step.Target], owned{wanted, m, r.State == checkpoint.Done})
			}
		}
	}
	return func(id gpu.UUID, instance *gpu.Instance) bool {
		for _, o := range byGPU[id] {
			if find([]gpu.Instance{*instance}, o.wanted, o.made, o.whole) != nil {
				return true
			}
		}
		return false
	}
}
