package sampler

import (
	"context"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
)

// WholeGPU is the target of Sample that is the GPU itself; other targets are GPU instances.
const WholeGPU = -1

// Library is the driver's library. Open and Close come one at a time and never beside another call; Close waits for calls that have not
// returned. The calls on one GPU come one at a time, those on several GPUs at once. No call takes longer than its deadline: a GPU that
// does not answer is gpu.ErrTimeout, and further calls on it fail at once. What a GPU or its driver does not support, or has no value for,
// is no error and leaves no value. Errors of which gpu.ErrDriverNotLoaded is one end the session.
type Library interface {
	// Open begins a session. gpu.ErrDriverReplaced: this process has loaded another library. Any other error: later, perhaps.
	Open(ctx context.Context) error
	// Close frees all samples and ends the session. Closing a closed library is no error.
	Close() error
	// GPUs lists the GPUs by index, and as faults those that do not answer. Those that the session has listed before are not asked again.
	GPUs(ctx context.Context) ([]metrics.Identity, []gpu.Fault, error)
	// Values reads the GPU's own fields, those of GPM left out.
	Values(ctx context.Context, id gpu.UUID, fields metrics.FieldSet, into *metrics.Values) error
	// MIGDevices begins a round: it lists the GPU's MIG devices, without values, and returns the GPU as it is now.
	MIGDevices(ctx context.Context, id gpu.UUID) (metrics.Identity, []metrics.MIGDevice, error)
	// MIGValues reads a MIG device's own fields, those of GPM left out. The device is one of the last MIGDevices.
	MIGValues(ctx context.Context, id gpu.UUID, device *metrics.MIGDevice, fields metrics.FieldSet) error
	// Sample takes a GPM sample of a target and sets what came out since the one before; a baseline sets nothing. A call that takes none,
	// which may be no error, makes the next one a baseline: the sample before it is too old.
	Sample(ctx context.Context, id gpu.UUID, target int, fields metrics.FieldSet, baseline bool, into *metrics.Values) error
	// ReleaseSamples frees the samples of a target. Nothing of the session is in use there afterwards. One without samples is no error.
	ReleaseSamples(ctx context.Context, id gpu.UUID, target int) error
	// Processes lists the processes on a GPU and on the MIG devices of the last MIGDevices, each once, and reports whether there are some
	// that the caller's pid namespace hides. They have no identity. interval is the time between rounds: what is sampled later than that from
	// now is dropped.
	Processes(ctx context.Context, id gpu.UUID, interval time.Duration) (metrics.ProcessList, error)
	// NextXID waits that long for an XID. Without one, the UUID is empty. It may run beside all calls but Open and Close.
	NextXID(ctx context.Context, wait time.Duration) (gpu.UUID, metrics.XID, error)
}

// Processes knows the processes of the pid namespace. Pids that it does not have are not in the answer; a process that has exited and is
// not reaped has no start time.
type Processes interface {
	// HidesProcesses says that this pid namespace is not that of the processes on the GPUs: pids mean nothing then, and lists may lack some.
	HidesProcesses() bool
	Identify(pids []uint32) map[uint32]metrics.ProcessIdentity
}

// Want is what a claim asks of a device of a GPU.
type Want struct {
	// MIG is the MIG device, empty for the GPU itself.
	MIG gpu.UUID
	// Sets are added to those of the node.
	Sets []string
	// Interval is the longest time between samples; 0 for the node's.
	Interval time.Duration
	// Claim is the claim's UID.
	Claim string
}
