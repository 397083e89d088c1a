package gpu

import "context"

// MIGDriver is the part of an open driver that partitions GPUs. Its errors are from this package.
type MIGDriver interface {
	// MIGMode reads the mode.
	MIGMode(ctx context.Context, id UUID) (MIGMode, error)
	// SetMIGMode returns nil when the mode is in force; after an error nothing is pending.
	SetMIGMode(ctx context.Context, id UUID, on bool) error
	// Instances lists the GPU instances with their compute instances in the order of their ids; none outside MIG mode. It costs a call
	// for each profile and several for each instance.
	Instances(ctx context.Context, id UUID) ([]Instance, error)
	// Occupied is Instances without the compute instances.
	Occupied(ctx context.Context, id UUID) ([]Instance, error)
	// Instance reads one GPU instance, with only the MIG device of that UUID in it; nil if there is no such instance.
	Instance(ctx context.Context, id UUID, gi int, device MIGUUID) (*Instance, error)
	// CreateInstance makes a GPU instance of the profile with that driver's id. ErrInUse: nothing was made.
	CreateInstance(ctx context.Context, id UUID, profile int, at Placement) (gi int, err error)
	// CreateComputeInstance makes the one that fills the GPU instance.
	CreateComputeInstance(ctx context.Context, id UUID, gi int) (ComputeInstance, error)
	DestroyComputeInstance(ctx context.Context, id UUID, gi, ci int) error
	DestroyInstance(ctx context.Context, id UUID, gi int) error
}
