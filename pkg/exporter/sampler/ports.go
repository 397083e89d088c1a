package sampler

import (
	"context"
	"time"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// WholeGPU is the target of Sample for the GPU itself; other targets are GPU instances.
const WholeGPU = -1

// Library is the driver's library. Open and Close are called one at a time and never during another call; Close waits for calls that have
// not returned. The calls on one GPU are sequential, calls on several GPUs parallel. No call exceeds its deadline: if a GPU does not
// respond, the call returns gpu.ErrTimeout, and further calls on it fail at once. A value that a GPU or its driver does not support or does
// not provide is absent, without an error. Errors of type gpu.ErrDriverNotLoaded end the session.
type Library interface {
	// Open begins a session. gpu.ErrDriverReplaced: this process has loaded another library. After any other error, a later call may succeed.
	Open(ctx context.Context) error
	// Close frees all samples and ends the session. Closing a closed library is no error.
	Close() error
	// GPUs lists the GPUs by index, and GPUs that do not respond as faults. It does not query GPUs again that this session has listed before.
	GPUs(ctx context.Context) ([]metrics.Identity, []gpu.Fault, error)
	// Values reads the GPU's own fields, except GPM's.
	Values(ctx context.Context, id gpu.UUID, fields metrics.FieldSet, into *metrics.Values) error
	// MIGDevices begins a round: it lists the GPU's MIG devices, without values, and returns the current identity of the GPU.
	MIGDevices(ctx context.Context, id gpu.UUID) (metrics.Identity, []metrics.MIGDevice, error)
	// MIGValues reads a MIG device's own fields, except GPM's. The device is one of the last MIGDevices.
	MIGValues(ctx context.Context, id gpu.UUID, device *metrics.MIGDevice, fields metrics.FieldSet) error
	// Sample takes a GPM sample of a target and sets the values since the previous sample; a baseline sets nothing. After a call without a
	// sample, which may return no error, the next one is a baseline, because the previous sample is too old.
	Sample(ctx context.Context, id gpu.UUID, target int, fields metrics.FieldSet, baseline bool, into *metrics.Values) error
	// ReleaseSamples frees the samples of a target. Afterwards the session uses nothing of the target. It returns no error for a target
	// without samples.
	ReleaseSamples(ctx context.Context, id gpu.UUID, target int) error
	// Processes lists the processes on a GPU and on the MIG devices of the last MIGDevices, each once and without identity, and reports
	// whether the caller's pid namespace hides some. interval is the time between rounds: samples further than that in the future are dropped.
	Processes(ctx context.Context, id gpu.UUID, interval time.Duration) (metrics.ProcessList, error)
	// NextXID waits for an XID for that time. Without one, the UUID is empty. It may run during all calls except Open and Close.
	NextXID(ctx context.Context, wait time.Duration) (gpu.UUID, metrics.XID, error)
}

// Processes identifies the processes of the pid namespace. Missing pids are not in the result; a process that has exited and is not reaped
// has no start time.
type Processes interface {
	// HidesProcesses reports that this pid namespace is not the namespace of the processes on the GPUs: pids are then meaningless, and lists
	// may be incomplete.
	HidesProcesses() bool
	Identify(pids []uint32) map[uint32]metrics.ProcessIdentity
}

// Want is a claim's request for a device of a GPU.
type Want struct {
	// MIG is the MIG device, empty for the GPU itself.
	MIG gpu.UUID
	// Sets are added to the node's sets.
	Sets []string
	// Interval is the longest time between samples; 0 for the node's interval.
	Interval time.Duration
	// Claim is the claim's UID.
	Claim string
}
