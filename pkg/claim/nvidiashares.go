package claim

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// capacityShares is the capacity of which NVIDIA's driver gives a claim one or several parts.
const capacityShares = "shares"

// shareFix is the correct request for a share of this driver.
const shareFix = "request the class timeslice." + nvidiaDriver + " or mps." + nvidiaDriver + " for a share, and a GPU of at least some memory by a " +
	"selector on its capacity"

// nvidiaShares refuses claims that were written for --consumable-shares of NVIDIA's driver: there a claim for the class of whole GPUs
// gets the memory or the shares that it requests. Kubernetes takes the memory for the least that the whole GPU must have, and the claim
// would get all of it.
func (s Source) nvidiaShares(p *Plan, rc *resourceapi.ResourceClaim) error {
	if s.Driver != nvidiaDriver {
		return nil
	}
	requests := Validator{Driver: s.Driver, Families: s.Families}.requests(rc.Spec.Devices.Requests)
	for i := range p.Results {
		r := &p.Results[i]
		at := slices.IndexFunc(requests, func(a asked) bool { return a.name == r.Request })
		if at < 0 || r.Admin || r.Device.Type() != gpu.TypeGPU {
			continue
		}
		memory, ok := memoryOf(requests[at].capacity)
		whole := int64(r.Device.Parent().Capacity.MemoryBytes) //nolint:gosec // of a GPU
		if ok && memory.CmpInt64(whole) < 0 {
			return r.refuse(shareFix, "capacity.requests.memory %s is less than the %s of the GPU, which is not shared by memory under the class %s",
				memory, binary(whole), requests[at].class)
		}
	}
	return nil
}

// refusesShares is nvidiaShares of a request without its device.
func (v Validator) refusesShares(r asked) error {
	if v.Driver != nvidiaDriver || r.class != nvidiaDriver || r.capacity == nil {
		return nil
	}
	if shares, ok := r.capacity.Requests[capacityShares]; ok {
		return fmt.Errorf("capacity.requests.%s %s: a whole GPU has no shares: %s", capacityShares, &shares, shareFix)
	}
	return nil
}

func memoryOf(capacity *resourceapi.CapacityRequirements) (*resource.Quantity, bool) {
	if capacity == nil {
		return nil, false
	}
	for _, name := range []resourceapi.QualifiedName{capacityMemory, nvidiaDriver + "/" + capacityMemory} {
		if memory, ok := capacity.Requests[name]; ok {
			return &memory, true
		}
	}
	return nil, false
}
