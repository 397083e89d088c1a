package scale

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Ask is what a claim asks for, and how.
type Ask string

// The asks. A layout has those that its devices can serve.
const (
	// AskGPU is a whole GPU.
	AskGPU Ask = "GPU by class"
	// AskProfile is a MIG device of the smallest profile, by the class of all MIG devices and a selector: two expressions for a device.
	AskProfile Ask = "1g.10gb by mig class and selector"
	// AskProfileClass is the same by the DeviceClass of the profile: one expression.
	AskProfileClass Ask = "1g.10gb by profile class"
	// AskProfileCapacity is the same by the capacity of the profile: none.
	AskProfileCapacity Ask = "1g.10gb by capacity"
	// AskMemory is a device with 19Gi of memory, by a selector: a MIG device where there are some.
	AskMemory Ask = "19Gi by selector"
	// AskMemoryCapacity is a MIG device with 19Gi of memory, by the capacity.
	AskMemoryCapacity Ask = "19Gi by migMemory capacity"
)

// allAsks is their order in tables.
var allAsks = []Ask{AskGPU, AskProfile, AskProfileClass, AskProfileCapacity, AskMemory, AskMemoryCapacity}

const (
	// smallest is the profile that is asked for.
	smallest = "1g.10gb"
	// smallestPerGPU is how many of them a GPU has at most.
	smallestPerGPU = 7
	// wantedMemory is more than what that profile has.
	wantedMemory = "19Gi"
)

// Layout is one way of publishing the GPUs of a node, and of asking for them.
type Layout struct {
	// Name is how tables and the command line call it.
	Name string
	// Model names the layout of NVIDIA's driver that it is compared with; empty for those models themselves.
	Model  string
	Driver string
	// Pools are what is published of the node's GPUs under a node's name.
	Pools   func(node string, n *gpu.Node) map[string]resourceslice.Pool
	Classes []resourceapi.DeviceClass
	Asks    map[Ask]*resourceapi.ExactDeviceRequest
}

// Layouts are those that are measured, the models last.
func Layouts() []Layout {
	return []Layout{
		prism("prism-whole", "nvidia-whole", prismOptions{}, AskGPU, AskMemory),
		prism("prism-whole-monitor", "nvidia-whole", prismOptions{monitor: true}, AskGPU, AskMemory),
		prism("prism-mig", "nvidia-mig", prismOptions{partitioned: true}, allAsks...),
		nvidia("nvidia-whole", nvidiaWhole, false, AskGPU, AskMemory),
		nvidia("nvidia-mig", nvidiaMIG, true, AskGPU, AskProfile, AskMemory),
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

// nvidia is a layout of NVIDIA's driver with the classes that its chart creates.
func nvidia(name string, pools func(node string, n *gpu.Node) map[string]resourceslice.Pool, partitioned bool, asks ...Ask) Layout {
	return Layout{
		Name: name, Driver: nvidiaDriver, Pools: pools, Classes: bothClasses(nvidiaDriver),
		Asks: pick(asks, commonAsks(nvidiaDriver, partitioned)),
	}
}

// commonAsks are the requests that both drivers serve.
func commonAsks(driver string, partitioned bool) map[Ask]*resourceapi.ExactDeviceRequest {
	hasMemory := fmt.Sprintf("device.capacity[%q].memory.compareTo(quantity(%q)) >= 0", driver, wantedMemory)
	all := map[Ask]*resourceapi.ExactDeviceRequest{
		AskGPU:     request(driver),
		AskProfile: request("mig."+driver, ofProfile(driver, smallest)),
		AskMemory:  request(driver, hasMemory),
	}
	if partitioned {
		all[AskMemory] = request("mig."+driver, hasMemory)
	}
	return all
}

// pick keeps the requests of some asks.
func pick(asks []Ask, from ...map[Ask]*resourceapi.ExactDeviceRequest) map[Ask]*resourceapi.ExactDeviceRequest {
	picked := map[Ask]*resourceapi.ExactDeviceRequest{}
	for _, ask := range asks {
		for _, requests := range from {
			if r := requests[ask]; r != nil {
				picked[ask] = r
			}
		}
	}
	return picked
}

func class(name string, expressions ...string) resourceapi.DeviceClass {
	return resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: selectors(expressions...)}}
}

// request asks for one device of a class.
func request(class string, expressions ...string) *resourceapi.ExactDeviceRequest {
	return &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1, Selectors: selectors(expressions...),
	}
}

// requestCapacity asks for one device of a class with so much of a capacity.
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
