package lifecycle

import (
	"context"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// instrumentedPartitioning is a session with fault points in MIG calls: a process may be killed between any two of them.
type instrumentedPartitioning struct{ instrumentedSession }

func (s instrumentedPartitioning) MIGMode(ctx context.Context, id gpu.UUID) (mode gpu.MIGMode, err error) {
	err = s.faultPoint("nvml.MIGMode", func() error { mode, err = s.Session.MIGMode(ctx, id); return err })
	return mode, err
}

func (s instrumentedPartitioning) SetMIGMode(ctx context.Context, id gpu.UUID, on bool) error {
	return s.faultPoint("nvml.SetMIGMode", func() error { return s.Session.SetMIGMode(ctx, id, on) })
}

func (s instrumentedPartitioning) Instances(ctx context.Context, id gpu.UUID) (instances []gpu.Instance, err error) {
	err = s.faultPoint("nvml.Instances", func() error { instances, err = s.Session.Instances(ctx, id); return err })
	return instances, err
}

func (s instrumentedPartitioning) Occupied(ctx context.Context, id gpu.UUID) (instances []gpu.Instance, err error) {
	err = s.faultPoint("nvml.Occupied", func() error { instances, err = s.Session.Occupied(ctx, id); return err })
	return instances, err
}

func (s instrumentedPartitioning) Instance(ctx context.Context, id gpu.UUID, gi int, device gpu.MIGUUID) (i *gpu.Instance, err error) {
	err = s.faultPoint("nvml.Instance", func() error { i, err = s.Session.Instance(ctx, id, gi, device); return err })
	return i, err
}

func (s instrumentedPartitioning) CreateInstance(ctx context.Context, id gpu.UUID, profile int, at gpu.Placement) (gi int, err error) {
	err = s.faultPoint("nvml.CreateInstance", func() error { gi, err = s.Session.CreateInstance(ctx, id, profile, at); return err })
	return gi, err
}

func (s instrumentedPartitioning) CreateComputeInstance(ctx context.Context, id gpu.UUID, gi int) (c gpu.ComputeInstance, err error) {
	err = s.faultPoint("nvml.CreateComputeInstance", func() error { c, err = s.Session.CreateComputeInstance(ctx, id, gi); return err })
	return c, err
}

func (s instrumentedPartitioning) DestroyComputeInstance(ctx context.Context, id gpu.UUID, gi, ci int) error {
	return s.faultPoint("nvml.DestroyComputeInstance", func() error { return s.Session.DestroyComputeInstance(ctx, id, gi, ci) })
}

func (s instrumentedPartitioning) DestroyInstance(ctx context.Context, id gpu.UUID, gi int) error {
	return s.faultPoint("nvml.DestroyInstance", func() error { return s.Session.DestroyInstance(ctx, id, gi) })
}
