package lifecycle

import (
	"context"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// touchedPartitioning is a session whose calls about MIG are touches: a process may die between any two of them.
type touchedPartitioning struct{ touchedSession }

func (s touchedPartitioning) MIGMode(ctx context.Context, id gpu.UUID) (mode gpu.MIGMode, err error) {
	err = s.touch("nvml.MIGMode", func() error { mode, err = s.Session.MIGMode(ctx, id); return err })
	return mode, err
}

func (s touchedPartitioning) SetMIGMode(ctx context.Context, id gpu.UUID, on bool) error {
	return s.touch("nvml.SetMIGMode", func() error { return s.Session.SetMIGMode(ctx, id, on) })
}

func (s touchedPartitioning) Instances(ctx context.Context, id gpu.UUID) (instances []gpu.Instance, err error) {
	err = s.touch("nvml.Instances", func() error { instances, err = s.Session.Instances(ctx, id); return err })
	return instances, err
}

func (s touchedPartitioning) Occupied(ctx context.Context, id gpu.UUID) (instances []gpu.Instance, err error) {
	err = s.touch("nvml.Occupied", func() error { instances, err = s.Session.Occupied(ctx, id); return err })
	return instances, err
}

func (s touchedPartitioning) Instance(ctx context.Context, id gpu.UUID, gi int, device gpu.MIGUUID) (i *gpu.Instance, err error) {
	err = s.touch("nvml.Instance", func() error { i, err = s.Session.Instance(ctx, id, gi, device); return err })
	return i, err
}

func (s touchedPartitioning) CreateInstance(ctx context.Context, id gpu.UUID, profile int, at gpu.Placement) (gi int, err error) {
	err = s.touch("nvml.CreateInstance", func() error { gi, err = s.Session.CreateInstance(ctx, id, profile, at); return err })
	return gi, err
}

func (s touchedPartitioning) CreateComputeInstance(ctx context.Context, id gpu.UUID, gi int) (c gpu.ComputeInstance, err error) {
	err = s.touch("nvml.CreateComputeInstance", func() error { c, err = s.Session.CreateComputeInstance(ctx, id, gi); return err })
	return c, err
}

func (s touchedPartitioning) DestroyComputeInstance(ctx context.Context, id gpu.UUID, gi, ci int) error {
	return s.touch("nvml.DestroyComputeInstance", func() error { return s.Session.DestroyComputeInstance(ctx, id, gi, ci) })
}

func (s touchedPartitioning) DestroyInstance(ctx context.Context, id gpu.UUID, gi int) error {
	return s.touch("nvml.DestroyInstance", func() error { return s.Session.DestroyInstance(ctx, id, gi) })
}
