package scale

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// RequestKind is a kind of device request in a claim: which device, and by which means.
type RequestKind string

// The kinds of requests. A layout supports the kinds that its devices can satisfy.
const (
	// RequestGPU is a whole GPU.
	RequestGPU RequestKind = "GPU by class"
	// RequestProfile is a MIG device of the smallest profile, by the class of all MIG devices and a selector: two expressions per device.
	RequestProfile RequestKind = "1g.10gb by mig class and selector"
	// RequestProfileClass is the same by the DeviceClass of the profile: one expression per device.
	RequestProfileClass RequestKind = "1g.10gb by profile class"
	// RequestProfileCapacity is the same by the capacity of the profile: no expression.
	RequestProfileCapacity RequestKind = "1g.10gb by capacity"
	// RequestMemory is a device with 19Gi of memory, by a selector: a MIG device if the layout has any.
	RequestMemory RequestKind = "19Gi by selector"
	// RequestMemoryCapacity is a MIG device with 19Gi of memory, by its capacity.
	RequestMemoryCapacity RequestKind = "19Gi by migMemory capacity"
)

// allRequests are all kinds, in the order of the tables.
var allRequests = []RequestKind{RequestGPU, RequestProfile, RequestProfileClass, RequestProfileCapacity, RequestMemory, RequestMemoryCapacity}

const (
	// smallest is the profile that is requested.
	smallest = "1g.10gb"
	// smallestPerGPU is the number of MIG devices of that profile that fit on a GPU.
	smallestPerGPU = 7
	// wantedMemory is more than the memory of that profile.
	wantedMemory = "19Gi"
)

// Layout is one way to publish the GPUs of a node and to request them.
type Layout struct {
	// Name is the name in tables and on the command line.
	Name string
	// Model is the name of the model of NVIDIA's driver that the layout is compared with; empty for the models.
	Model  string
	Driver string
	// Pools returns the pools of a node with these GPUs.
	Pools    func(node string, n *gpu.Node) map[string]resourceslice.Pool
	Classes  []resourceapi.DeviceClass
	Requests map[RequestKind]*resourceapi.ExactDeviceRequest
}

// Layouts returns all measured layouts, the models last.
func Layouts() []Layout {
	return []Layout{
		prism("prism-whole", "nvidia-whole", prismOptions{}, RequestGPU, RequestMemory),
		prism("prism-whole-monitor", "nvidia-whole", prismOptions{monitor: true}, RequestGPU, RequestMemory),
		prism("prism-mig", "nvidia-mig", prismOptions{partitioned: true}, allRequests...),
		nvidia("nvidia-whole", nvidiaWhole, false, RequestGPU, RequestMemory),
		nvidia("nvidia-mig", nvidiaMIG, true, RequestGPU, RequestProfile, RequestMemory),
	}
}

// LayoutByName returns one of Layouts.
func LayoutByName(name string) (Layout, error) {
	var names []string
	for _, l := range Layouts() {
		if l.Name == name {
			return l, nil
		}
		names = append(names, l.Name)
	}
	return Layout{}, fmt.Errorf("unknown layout %q; valid layouts: %q", name, names)
}

// nvidia returns a layout of NVIDIA's driver with the DeviceClasses of its chart.
func nvidia(name string, pools func(node string, n *gpu.Node) map[string]resourceslice.Pool, partitioned bool, kinds ...RequestKind) Layout {
	return Layout{
		Name: name, Driver: nvidiaDriver, Pools: pools, Classes: bothClasses(nvidiaDriver),
		Requests: pick(kinds, commonRequests(nvidiaDriver, partitioned)),
	}
}

// commonRequests returns the requests that both drivers support.
func commonRequests(driver string, partitioned bool) map[RequestKind]*resourceapi.ExactDeviceRequest {
	hasMemory := fmt.Sprintf("device.capacity[%q].memory.compareTo(quantity(%q)) >= 0", driver, wantedMemory)
	all := map[RequestKind]*resourceapi.ExactDeviceRequest{
		RequestGPU:     request(driver),
		RequestProfile: request("mig."+driver, ofProfile(driver, smallest)),
		RequestMemory:  request(driver, hasMemory),
	}
	if partitioned {
		all[RequestMemory] = request("mig."+driver, hasMemory)
	}
	return all
}

// pick returns the requests of these kinds.
func pick(kinds []RequestKind, from ...map[RequestKind]*resourceapi.ExactDeviceRequest) map[RequestKind]*resourceapi.ExactDeviceRequest {
	picked := map[RequestKind]*resourceapi.ExactDeviceRequest{}
	for _, kind := range kinds {
		for _, requests := range from {
			if r := requests[kind]; r != nil {
				picked[kind] = r
			}
		}
	}
	return picked
}

func class(name string, expressions ...string) resourceapi.DeviceClass {
	return resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: selectors(expressions...)}}
}

// request returns a request for one device of a class.
func request(class string, expressions ...string) *resourceapi.ExactDeviceRequest {
	return &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1, Selectors: selectors(expressions...),
	}
}

// requestCapacity returns a request for one device of a class with an amount of a capacity.
func requestCapacity(class string, capacity resourceapi.QualifiedName, amount string) *resourceapi.ExactDeviceRequest {
	r := request(class)
	r.Capacity = &resourceapi.CapacityRequirements{
		Requests: map[resourceapi.QualifiedName]resource.Quantity{capacity: resource.MustParse(amount)},
	}
	return r
}

func selectors(expressions ...string) (all []resourceapi.DeviceSelector) {
	for _, e := range expressions {
		all = append(all, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
	}
	return all
}
