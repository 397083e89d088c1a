package scale

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/controller/classes"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// prismDriver is the default name of the driver.
const prismDriver = "gpu.prism.dev"

// prismOptions are the differences between the layouts of Prism.
type prismOptions struct {
	// partitioned advertises every GPU as a whole and in all of its MIG profiles, instead of as a whole only.
	partitioned bool
	// monitor adds a monitor device in a separate pool.
	monitor bool
}

// prismPools returns the pools that the plugin publishes.
func prismPools(node string, n *gpu.Node, o prismOptions) map[string]resourceslice.Pool {
	opts := publish.Options{DriverName: prismDriver, NodeName: node, Additional: gpu.Additional{Monitor: o.monitor}}
	if o.partitioned {
		opts.Layout = gpu.Layout{}
		for i := range n.GPUs {
			opts.Layout[n.GPUs[i].UUID] = gpu.Modes{Whole: true, MIG: n.GPUs[i].MIG.ProfileNames()}
		}
	}
	return publish.Resources(opts, n).Pools
}

// prism returns a layout of Prism with the DeviceClasses of its chart and its controller.
func prism(name, model string, o prismOptions, kinds ...RequestKind) Layout {
	profileClass, profileExpression := classes.ProfileClass(prismDriver, smallest)
	byCapacity := byCapacityClass(prismDriver)
	l := Layout{
		Name: name, Model: model, Driver: prismDriver,
		Pools:   func(node string, n *gpu.Node) map[string]resourceslice.Pool { return prismPools(node, n, o) },
		Classes: append(bothClasses(prismDriver), class(profileClass, profileExpression), class(byCapacity)),
	}
	l.Requests = pick(kinds, commonRequests(prismDriver, o.partitioned), map[RequestKind]*resourceapi.ExactDeviceRequest{
		RequestProfileClass:    request(profileClass),
		RequestProfileCapacity: requestCapacity(byCapacity, profileCapacity(prismDriver, smallest), "1"),
		RequestMemoryCapacity:  requestCapacity(byCapacity, prismDriver+"/"+publish.CapMIGMemory, wantedMemory),
	})
	return l
}

// byCapacityClass returns the name of the DeviceClass without selectors, as in the chart's template prism.byCapacity.
func byCapacityClass(driver string) string { return "by-capacity." + driver }

// profileCapacity returns the capacity that only the MIG devices of a profile have.
func profileCapacity(driver, profile string) resourceapi.QualifiedName {
	return resourceapi.QualifiedName(driver + "/" + publish.ProfileCapacity(profile))
}

// bothClasses returns the DeviceClasses for whole GPUs and for MIG devices.
func bothClasses(driver string) []resourceapi.DeviceClass {
	return []resourceapi.DeviceClass{class(driver, ofType(driver, gpu.TypeGPU)), class("mig."+driver, ofType(driver, gpu.TypeMIG))}
}

func ofType(driver string, t gpu.DeviceType) string {
	return fmt.Sprintf("device.driver == %q && device.attributes[%q].type == %q", driver, driver, t)
}

func ofProfile(driver, profile string) string {
	return fmt.Sprintf("device.attributes[%q].profile == %q", driver, profile)
}
