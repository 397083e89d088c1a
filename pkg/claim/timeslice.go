package claim

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// timeSlice plans GPUs that several claims share by time-slicing.
type timeSlice struct{}

// Type is gpu.TypeTimeSlice.
func (timeSlice) Type() gpu.DeviceType { return gpu.TypeTimeSlice }

// HasClass knows timeslice.<driver>.
func (timeSlice) HasClass(class, driver string) bool {
	return class == classOf(gpu.TypeTimeSlice, driver)
}

// Supports nothing about sharing.
func (timeSlice) Supports(kind string, config *v1alpha1.GPUConfig) error {
	if config.Sharing != nil {
		return fmt.Errorf("%s.sharing is not supported for a device of type %q, whose GPU other claims use too: the node's configuration "+
			"says how they share it", kind, gpu.TypeTimeSlice)
	}
	return nil // Plan decides about enforceMemory, which depends on the GPU and on the request
}

// Admit refuses admin access.
func (timeSlice) Admit(r *Result, driver string) error {
	if r.Admin {
		return r.refuse(monitorFix(driver), "time-sliced shares cannot be requested with adminAccess")
	}
	return nil
}

// Plan turns the GPU's MIG mode off if it may be on, and refuses enforceMemory for a share without a memory limit. A limit needs no step:
// it is set on the container's cgroup and ends with that.
func (timeSlice) Plan(p *Plan, r *Result, options Options, modes gpu.Modes) error {
	if options.GPU != nil && options.GPU.EnforceMemory != nil && *options.GPU.EnforceMemory {
		if err := r.limited(); err != nil {
			return err
		}
	}
	p.withoutMIG(r, modes)
	return nil
}

// limited refuses a time-sliced share whose containers get no memory limit.
func (r *Result) limited() error {
	const withdraw = "take enforceMemory out of the configuration"
	if g := r.Device.Parent(); !g.MemoryLimits {
		return r.refuse("use a whole GPU or a MIG device, or "+withdraw,
			"enforceMemory is not supported for a time-sliced share of GPU %s on this node: it requires NVIDIA driver 615 or later, a host with "+
				"cgroup v2, and the OCI hook of the kubelet plugin", g.UUID)
	}
	memory, err := ConsumedMemory(r.Consumed)
	if err != nil {
		return r.refuse(againFix, "%v", err)
	}
	if memory <= 0 {
		return r.refuse("set capacity.requests.memory of the request, or "+withdraw,
			"enforceMemory requires a memory request: a time-sliced share without one may use all memory of the GPU")
	}
	return nil
}

// ConsumedMemory is the memory of a shareable device, in bytes, that a result was allocated; 0 if nothing was requested.
func ConsumedMemory(consumed map[string]string) (int64, error) {
	const memory = "memory"
	text, ok := consumed[memory]
	if !ok {
		return 0, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("reading the allocated %s %q: %w", memory, text, err)
	}
	return quantity.Value(), nil
}

// Resource is the node's name for the shares, else the name of a GPU's resource.
func (timeSlice) Resource(_ gpu.Device, modes gpu.Modes) string {
	if modes.TimeSlice == nil {
		return resourceGPU
	}
	return cmp.Or(modes.TimeSlice.Resource, resourceGPU)
}

// resourceGPU is the extended resource that requests a GPU.
const resourceGPU = "nvidia.com/gpu"
