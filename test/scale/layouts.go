package scale

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/publish"
)

// Ask is what a claim asks for.
type Ask string

// The asks. A layout has those that its devices can serve.
const (
	// AskGPU is a whole GPU.
	AskGPU Ask = "gpu"
	// AskProfile is a MIG device of the smallest profile, by a class for all MIG devices and a selector.
	AskProfile Ask = "profile by selector"
	// AskProfileClass is the same by the DeviceClass of the profile.
	AskProfileClass Ask = "profile by class"
	// AskMemory is a device with 19Gi of memory, by a selector.
	AskMemory Ask = "19Gi by selector"
)

const (
	prismDriver  = "gpu.prism.dev"
	nvidiaDriver = "gpu.nvidia.com"
	// smallest is the profile that is asked for.
	smallest = "1g.10gb"
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
		prism("prism-whole", "nvidia-whole", nil, AskGPU, AskMemory),
		prism("prism-mig", "nvidia-mig", everyProfile, AskGPU, AskProfile, AskProfileClass, AskMemory),
		nvidia("nvidia-whole", nvidiaWhole, AskGPU, AskMemory),
		nvidia("nvidia-mig", nvidiaMIG, AskGPU, AskProfile, AskMemory),
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

// everyProfile advertises every GPU whole and in all of its MIG profiles.
func everyProfile(n *gpu.Node) gpu.Layout {
	layout := gpu.Layout{}
	for i := range n.GPUs {
		layout[n.GPUs[i].UUID] = gpu.Offer{Whole: true, MIG: n.GPUs[i].MIG.ProfileNames()}
	}
	return layout
}

// prism is a layout of Prism; a nil layout advertises whole GPUs only.
func prism(name, model string, layout func(*gpu.Node) gpu.Layout, asks ...Ask) Layout {
	return withAsks(Layout{
		Name: name, Model: model, Driver: prismDriver,
		Pools: func(node string, n *gpu.Node) map[string]resourceslice.Pool {
			opts := publish.Options{DriverName: prismDriver, NodeName: node}
			if layout != nil {
				opts.Layout = layout(n)
			}
			return publish.Resources(opts, n).Pools
		},
	}, asks)
}

func nvidia(name string, pools func(node string, n *gpu.Node) map[string]resourceslice.Pool, asks ...Ask) Layout {
	return withAsks(Layout{Name: name, Driver: nvidiaDriver, Pools: pools}, asks)
}

// withAsks adds the classes, as the charts of both drivers make them, and the requests.
func withAsks(l Layout, asks []Ask) Layout {
	d := l.Driver
	isGPU, isMIG := ofType(d, gpu.TypeGPU), ofType(d, gpu.TypeMIG)
	hasProfile := fmt.Sprintf("device.attributes[%q].profile == %q", d, smallest)
	hasMemory := fmt.Sprintf(`device.capacity[%q].memory.compareTo(quantity("19Gi")) >= 0`, d)
	l.Classes = []resourceapi.DeviceClass{class(d, isGPU), class("mig."+d, isMIG), class("mig-1g-10gb."+d, isMIG+" && "+hasProfile)}
	all := map[Ask]*resourceapi.ExactDeviceRequest{
		AskGPU:          request(d),
		AskProfile:      request("mig."+d, hasProfile),
		AskProfileClass: request("mig-1g-10gb." + d),
		AskMemory:       request("mig."+d, hasMemory),
	}
	l.Asks = map[Ask]*resourceapi.ExactDeviceRequest{}
	for _, ask := range asks {
		l.Asks[ask] = all[ask]
	}
	if _, slices := l.Asks[AskProfile]; !slices {
		l.Asks[AskMemory] = request(d, hasMemory)
	}
	return l
}

func ofType(driver string, t gpu.DeviceType) string {
	return fmt.Sprintf("device.driver == %q && device.attributes[%q].type == %q", driver, driver, t)
}

func class(name, expression string) resourceapi.DeviceClass {
	return resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: selectors(expression)}}
}

// request asks for one device of a class.
func request(class string, expressions ...string) *resourceapi.ExactDeviceRequest {
	return &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1, Selectors: selectors(expressions...),
	}
}

func selectors(expressions ...string) (all []resourceapi.DeviceSelector) {
	for _, e := range expressions {
		all = append(all, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
	}
	return all
}
