package claim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// StepMPS is the kind of the step by which an MPS control daemon serves a GPU or MIG device. Several claims share its effect.
const StepMPS = "mps"

// MPS is the Args of a step of kind StepMPS: how one result uses the daemon, and the settings that start the daemon if it is not running.
type MPS struct {
	MPSUse
	// Default are the settings of the daemon for all of its clients.
	Default MPSDefaults `json:"default"`
	// Bounds limit all shares of the GPU together; nil for a device that is exclusive to the claim.
	Bounds *MPSBounds `json:"bounds,omitempty"`
	// MIG is the MIG device that the daemon serves, which an earlier step of the claim made or an administrator; nil for a GPU.
	MIG *MIG `json:"mig,omitempty"`
}

// MPSUse is how one result is used as an MPS client.
type MPSUse struct {
	// Daemon is the control daemon of the device.
	Daemon gpu.MPSDaemonID `json:"daemon"`
	// MemoryMiB limits the memory of each process; 0 for no limit but the daemon's.
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// ActiveThreadPercentage limits the SMs of each process; 0 for no limit but the daemon's.
	ActiveThreadPercentage int `json:"activeThreadPercentage,omitempty"`
}

// MPSDefaults are the settings of a control daemon for all of its clients.
type MPSDefaults struct {
	// MemoryMiB is the most that a client may have; 0 for no limit.
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// ActiveThreadPercentage is the most that a client may have; 0 for no limit.
	ActiveThreadPercentage int `json:"activeThreadPercentage,omitempty"`
	// ShmBytes is the size of the /dev/shm that the clients share.
	ShmBytes int64 `json:"shmBytes"`
}

// MPSBounds limit all MPS shares of a GPU together.
type MPSBounds struct {
	// MemoryMiB is the sum of their memory, ActiveThreadPercentage of their percentages; 0 for no bound.
	MemoryMiB              int64 `json:"memoryMiB,omitempty"`
	ActiveThreadPercentage int   `json:"activeThreadPercentage,omitempty"`
	// Shares is how many there may be; 0 for no bound.
	Shares int `json:"shares,omitempty"`
}

// Exceeded says in which way these shares of one GPU exceed the bounds; empty if they do not.
func (b *MPSBounds) Exceeded(shares []MPSUse) string {
	var memory int64
	var threads int
	for _, share := range shares {
		memory, threads = memory+share.MemoryMiB, threads+share.ActiveThreadPercentage
	}
	switch {
	case b == nil:
	case b.Shares > 0 && len(shares) > b.Shares:
		return fmt.Sprintf("the GPU would have %d MPS shares, and may have %d", len(shares), b.Shares)
	case b.MemoryMiB > 0 && memory > b.MemoryMiB:
		return fmt.Sprintf("the MPS shares of the GPU would have %d MiB of memory together, and may have %d MiB", memory, b.MemoryMiB)
	case b.ActiveThreadPercentage > 0 && threads > b.ActiveThreadPercentage:
		return fmt.Sprintf("the MPS shares of the GPU would have an active thread percentage of %d together, and may have %d",
			threads, b.ActiveThreadPercentage)
	}
	return ""
}

// Exceeded says how results with the data of the MPS extension, each an MPSUse, exceed the bounds of the device; empty if they do not.
func (m MPS) Exceeded(results []json.RawMessage) (string, error) {
	uses := make([]MPSUse, len(results))
	for i, raw := range results {
		if err := json.Unmarshal(raw, &uses[i]); err != nil {
			return "", fmt.Errorf("reading how a device is used with MPS: %w", err)
		}
	}
	return m.Bounds.Exceeded(uses), nil
}

// ParseMPS reads the Args of a step of kind StepMPS.
func ParseMPS(args json.RawMessage) (m MPS, err error) {
	if err := json.Unmarshal(args, &m); err != nil {
		return m, fmt.Errorf("reading the arguments of step %s: %w", StepMPS, err)
	}
	return m, nil
}

// mpsShare plans GPUs that several claims share with MPS.
type mpsShare struct{}

// Type is gpu.TypeMPS.
func (mpsShare) Type() gpu.DeviceType { return gpu.TypeMPS }

// HasClass knows mps.<driver>.
func (mpsShare) HasClass(class, driver string) bool { return class == classOf(gpu.TypeMPS, driver) }

// Supports limits of the claim that are below its allocation.
func (mpsShare) Supports(kind string, config *v1alpha1.GPUConfig) error {
	if err := refuseStrategy(v1alpha1.StrategyTimeSlicing, kind, config, fmt.Sprintf("a device of type %q", gpu.TypeMPS)); err != nil {
		return err
	}
	if enforcesMemory(config) {
		return fmt.Errorf("%s.enforceMemory is not supported for a device of type %q: %s", kind, gpu.TypeMPS, cooperative)
	}
	return nil
}

// Admit refuses admin access.
func (mpsShare) Admit(r *Result, driver string) error {
	if r.Admin {
		return r.refuse(monitorFix(driver), adminShare)
	}
	return nil
}

// Asked refuses admin access, several devices, and a percentage out of range.
func (mpsShare) Asked(count int64, admin bool, capacity *resourceapi.CapacityRequirements) error {
	switch {
	case admin:
		return errors.New(adminShare)
	case count > 1:
		return severalWithMPS(count)
	case capacity == nil:
		return nil
	}
	if threads, ok := capacity.Requests[capacityThreads]; ok && (threads.Sign() < 0 || threads.CmpInt64(100) > 0) {
		return fmt.Errorf("capacity.requests.%s must be between 0 and 100, got %s", capacityThreads, &threads)
	}
	return nil
}

// Plan turns the GPU's MIG mode off if it may be on, and lets the control daemon of the GPU serve the claim.
func (mpsShare) Plan(p *Plan, r *Result, options Options, modes gpu.Modes) error {
	d, ok := r.Device.(gpu.MPSShare)
	if !ok || modes.MPS == nil {
		return r.refuseMendable(againFix, "GPU %s is not shared with MPS now", r.Device.Parent().UUID)
	}
	if !modes.MPS.Allows(p.Namespace) {
		// The refusal is read by the namespace that it is for, which may be another tenant's than those that are allowed.
		return r.refuseMendable("request a share of another GPU, or have the node's administrator add the namespace to mps.namespaces in the node's configuration",
			"claims of namespace %q cannot use MPS shares of GPU %s", p.Namespace, d.GPU.UUID)
	}
	if !volta(d.GPU) {
		return r.refuse("take mps out of the modes of this GPU in the node's configuration", "%s", tooOldForMPS(d.GPU))
	}
	use, err := allocatedMPS(r, d.Size)
	if err == nil {
		err = use.lower(r, options.mps())
	}
	if err != nil {
		return err
	}
	p.withoutMIG(r, modes)
	use.Daemon = gpu.MPSDaemonOf(d)
	return p.serve(r, MPS{
		MPSUse: use,
		// The limits can be lowered for each client, but not raised.
		Default: MPSDefaults{MemoryMiB: d.Size.Memory.Max / mebibyte, ShmBytes: cmp.Or(modes.MPS.ShmBytes, defaultShmBytes)},
		Bounds: &MPSBounds{
			MemoryMiB: d.Size.Memory.Total / mebibyte, ActiveThreadPercentage: d.Size.Threads.Total, Shares: d.Size.Replicas,
		},
	})
}

// Resource is the node's name for the shares; empty without one.
func (mpsShare) Resource(_ gpu.Device, modes gpu.Modes) string {
	if modes.MPS == nil {
		return ""
	}
	return modes.MPS.Resource
}

// adminShare says why a claim with admin access cannot get an MPS share.
const adminShare = "MPS shares cannot be requested with adminAccess"

// The names of the capacities that a share consumes in part.
const (
	capacityMemory  = "memory"
	capacityThreads = "activeThreadPercentage"
)

// allocatedMPS is the consumed capacity that the scheduler allocated to a share. A result without consumed capacity, as on a GPU with one
// share, gets the defaults.
func allocatedMPS(r *Result, size gpu.MPSSize) (use MPSUse, err error) {
	bytes, err := consumed(r, capacityMemory, size.Memory.Default)
	if err != nil {
		return use, err
	}
	percentage, err := consumed(r, capacityThreads, int64(size.Threads.Default))
	if err != nil {
		return use, err
	}
	switch m := size.Memory; {
	case percentage < 0 || percentage > 100:
		return use, r.refuse(fixRequest(capacityThreads), "the request was allocated %s %d, which must be between 0 and 100",
			capacityThreads, percentage)
	case bytes < max(m.Min, mebibyte) || bytes > m.Max:
		return use, r.refuse(fixRequest(capacityMemory), "the request was allocated %s of memory, and an MPS share of GPU %s has %s to %s",
			binary(bytes), r.Device.Parent().UUID, binary(max(m.Min, mebibyte)), binary(m.Max))
	}
	return MPSUse{MemoryMiB: bytes / mebibyte, ActiveThreadPercentage: int(percentage)}, nil
}

// consumed is how much of a capacity the scheduler allocated to the result.
func consumed(r *Result, capacity string, otherwise int64) (int64, error) {
	text, ok := r.Consumed[capacity]
	if !ok {
		return otherwise, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, r.refuse(againFix, "reading the allocated %s %q: %v", capacity, text, err)
	}
	value, whole := quantity.AsInt64()
	if !whole {
		return 0, r.refuse(fixRequest(capacity), "the request was allocated %s %s, which is not an integer", capacity, text)
	}
	return value, nil
}

// fixRequest is the advice if the request of a capacity is wrong.
func fixRequest(capacity string) string {
	return fmt.Sprintf("correct capacity.requests.%s of the request, and recreate the claim", capacity)
}

// lower applies the limits of the claim's configuration, nil for none. They cannot raise the allocated values.
func (u *MPSUse) lower(r *Result, settings *v1alpha1.MPS) error {
	if settings == nil {
		return nil
	}
	const path = "GPUConfig.sharing.mps."
	if limit := settings.MemoryLimit; limit != nil {
		mib := limit.Value() / mebibyte
		if mib > u.MemoryMiB {
			return r.refuse("lower the limit, or request more with capacity.requests.memory",
				path+"memoryLimit %s is more than the %s that the request was allocated", limit, binary(u.MemoryMiB*mebibyte))
		}
		u.MemoryMiB = mib
	}
	if limit := settings.ActiveThreadPercentage; limit != nil {
		percentage, allocated := int(*limit), u.ActiveThreadPercentage
		if allocated != 0 && (percentage == 0 || percentage > allocated) {
			return r.refuse("lower the limit, or request more with capacity.requests.activeThreadPercentage",
				path+"activeThreadPercentage %d%s is more than the %d that the request was allocated", percentage, unlimited(percentage), allocated)
		}
		u.ActiveThreadPercentage = percentage
	}
	return nil
}

// unlimited explains a percentage of 0.
func unlimited(percentage int) string {
	if percentage == 0 {
		return ", which means no limit,"
	}
	return ""
}

// binary is a number of bytes as a quantity.
func binary(bytes int64) *resource.Quantity { return resource.NewQuantity(bytes, resource.BinarySI) }
