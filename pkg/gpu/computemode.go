package gpu

import "context"

// ComputeMode says which processes may have contexts on a GPU, in the words of nvidia-smi.
type ComputeMode string

// The compute modes.
const (
	ComputeDefault          ComputeMode = "Default"
	ComputeExclusiveThread  ComputeMode = "Exclusive_Thread"
	ComputeProhibited       ComputeMode = "Prohibited"
	ComputeExclusiveProcess ComputeMode = "Exclusive_Process"
)

// ComputeModes is the part of an open driver that reads and sets compute modes. Its errors are from this package; an *UnsupportedError
// for a device without a compute mode of its own.
type ComputeModes interface {
	// ComputeMode reads the mode of a GPU or MIG device.
	ComputeMode(ctx context.Context, device string) (ComputeMode, error)
	// SetComputeMode returns nil when the mode is in force. It lasts until the driver is unloaded; without persistence mode that is when
	// the last process closes the GPU.
	SetComputeMode(ctx context.Context, device string, mode ComputeMode) error
}
