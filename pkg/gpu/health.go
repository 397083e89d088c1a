package gpu

import (
	"context"
	"time"
)

// HealthReading is the result of one poll of a GPU.
type HealthReading struct {
	// UUID is the GPU's; empty if the driver lists a GPU that never answered.
	UUID UUID
	// Err says why the GPU did not answer, ErrLost or ErrTimeout for most; ErrNotFound if the driver does not list it any more.
	Err error
	// Action is the repair that the driver asks for; nil if the driver or the board does not report it.
	Action *RecoveryAction
	// RowRemapPending and RowRemapFailure are the flags of row remapping, RetirementPending is the flag of page retirement; false if the
	// board does not report them.
	RowRemapPending, RowRemapFailure, RetirementPending bool
	// Fabric is the state of the GPU's registration with the fabric of an NVSwitch board; empty on other boards.
	Fabric FabricState
	// MissingNode is the host's path of a device node that is not there and that containers with the GPU need: its own, or a control node.
	MissingNode string
	// Events: errors of the GPU are reported as events.
	Events bool
}

// RecoveryAction is the repair that the driver asks for, as in NVML's nvmlDeviceGpuRecoveryAction_t.
type RecoveryAction int

// RecoveryNone is the action of a GPU that needs no repair.
const RecoveryNone RecoveryAction = 0

// FabricState is the state of a GPU's registration with the fabric of an NVSwitch board.
type FabricState string

// The states of the fabric; all others than FabricCompleted are FabricNotReady.
const (
	FabricCompleted FabricState = "completed"
	FabricNotReady  FabricState = "not-ready"
)

// HealthPoll contains the readings of one poll.
type HealthPoll struct {
	// At is the end of the poll.
	At time.Time
	// Whole: the poll was about all GPUs of the node, not only about the ones in Readings.
	Whole bool
	// Err says why the driver could not be asked; nil if it could.
	Err error
	// Readings are of these GPUs, also of lost ones.
	Readings []HealthReading
}

// HealthEvent is an error that the driver has reported for a GPU.
type HealthEvent struct {
	// GPU is the physical GPU; empty if all GPUs are to be polled, as after events were not received for a while.
	GPU UUID
	// XID is the code of the error; 0 for an event without one.
	XID uint64
}

// HealthDriver is the part of an open driver that reports the health of GPUs.
type HealthDriver interface {
	// Alive asks an inspected GPU whether it responds, in one call. A GPU that is being changed counts as alive.
	Alive(ctx context.Context, id UUID) error
	// Health reads what the driver reports about the memory and the fabric of a GPU that has just responded, and the repair that it needs. It
	// costs one call; two if the board is part of a fabric. It never sets HealthReading.MissingNode. The reading of a GPU that is being
	// changed is the previous one.
	Health(ctx context.Context, g *GPU) HealthReading
	// WatchHealth calls report for each event, until the context ends or the driver is closed. It keeps on trying after errors, and is never
	// called twice at the same time. report must not block.
	WatchHealth(ctx context.Context, report func(HealthEvent)) error
}
