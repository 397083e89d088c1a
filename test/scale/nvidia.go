package scale

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// The models follow the devices that dra-driver-nvidia-gpu publishes (deviceinfo.go, mig.go and partitions.go of its GPU plugin, August
// 2026): names and number of devices, attributes, capacities and counters, and their spread over pools and ResourceSlices. Values come from
// the simulated GPUs.

// nvidiaDriver is the name of NVIDIA's driver.
const nvidiaDriver = "gpu.nvidia.com"

// nvidiaShared are the attributes that both drivers publish under the same names.
var nvidiaShared = []resourceapi.QualifiedName{
	publish.AttrProductName, publish.AttrBrand, publish.AttrArchitecture, publish.AttrCUDAComputeCapability, publish.AttrDriverVersion,
	publish.AttrCUDADriverVersion, publish.AttrPCIBusID, publish.AttrPCIeRoot, publish.AttrNUMANode,
}

// nvidiaWhole returns the layout without dynamic MIG: a pool with a device per GPU, without counters.
func nvidiaWhole(node string, n *gpu.Node) map[string]resourceslice.Pool {
	devices := make([]resourceapi.Device, len(n.GPUs))
	for i := range n.GPUs {
		devices[i] = resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d", i), Attributes: nvidiaAttributes(n, i, ""),
			Capacity: amounts(map[string]int64{"memory": int64(n.GPUs[i].Capacity.MemoryBytes)}),
		}
	}
	return map[string]resourceslice.Pool{node: {Slices: []resourceslice.Slice{{Devices: devices}}}}
}

// nvidiaMIG returns the layout with dynamic MIG: a pool whose first ResourceSlice contains the counters of all GPUs, then a ResourceSlice
// per GPU with the GPU and all placements of its profiles, sorted by name.
func nvidiaMIG(node string, n *gpu.Node) map[string]resourceslice.Pool {
	counted := resourceslice.Slice{}
	pool := resourceslice.Pool{Slices: make([]resourceslice.Slice, 1, 1+len(n.GPUs))}
	for i := range n.GPUs {
		m := n.GPUs[i].MIG
		set := fmt.Sprintf("gpu-%d-counter-set", i)
		most := map[string]int64{}
		for j := range m.Profiles {
			for name, amount := range nvidiaAmounts(m.Profiles[j].Capacity) {
				most[name] = max(most[name], amount)
			}
		}
		everything := nvidiaCounters(most, gpu.Placement{Size: m.MemorySlices()})
		counted.SharedCounters = append(counted.SharedCounters, resourceapi.CounterSet{Name: set, Counters: everything})
		devices := []resourceapi.Device{{
			Name: fmt.Sprintf("gpu-%d", i), Attributes: nvidiaAttributes(n, i, ""), Capacity: amounts(most),
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: set, Counters: everything}},
		}}
		for j := range m.Profiles {
			devices = append(devices, nvidiaPlacements(n, i, &m.Profiles[j], set)...)
		}
		slices.SortFunc(devices, func(a, b resourceapi.Device) int { return strings.Compare(a.Name, b.Name) })
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: devices})
	}
	pool.Slices[0] = counted
	return map[string]resourceslice.Pool{node: pool}
}

// nvidiaPlacements returns the devices of one profile of GPU i.
func nvidiaPlacements(n *gpu.Node, i int, p *gpu.MIGProfile, set string) []resourceapi.Device {
	name := strings.NewReplacer(".", "", "+", "-").Replace(p.Name)
	takes := nvidiaAmounts(p.Capacity)
	devices := make([]resourceapi.Device, len(p.Placements))
	for k, at := range p.Placements {
		devices[k] = resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d-mig-%s-%d-%d", i, name, p.ID, at.Start), Attributes: nvidiaAttributes(n, i, p.Name), Capacity: amounts(takes),
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: set, Counters: nvidiaCounters(takes, at)}},
		}
	}
	return devices
}

// nvidiaAttributes returns the attributes of GPU i, or of a MIG device of a profile on it.
func nvidiaAttributes(n *gpu.Node, i int, profile string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	only := *n
	only.GPUs = n.GPUs[i : i+1]
	ours := publish.Resources(publish.Options{DriverName: nvidiaDriver, NodeName: "n"}, &only).Pools["n"].Slices[0].Devices[0].Attributes
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"addressingMode": text("HMM")}
	for _, name := range nvidiaShared {
		if value, known := ours[name]; known {
			all[name] = value
		}
	}
	uuid := text(string(n.GPUs[i].UUID))
	if profile == "" {
		all["type"], all["uuid"] = text(string(gpu.TypeGPU)), uuid
		return all
	}
	all["type"], all["parentUUID"], all["profile"] = text(string(gpu.TypeMIG)), uuid, text(profile)
	return all
}

func nvidiaAmounts(c gpu.Capacity) map[string]int64 {
	return map[string]int64{
		"memory": int64(c.MemoryBytes), "multiprocessors": int64(c.Multiprocessors), "copyEngines": int64(c.CopyEngines),
		"decoders": int64(c.Decoders), "encoders": int64(c.Encoders), "jpegEngines": int64(c.JPEGEngines), "ofaEngines": int64(c.OFAEngines),
	}
}

// nvidiaCounterNames are the counters whose names differ from the names of the capacities.
var nvidiaCounterNames = map[string]string{"copyEngines": "copy-engines", "jpegEngines": "jpeg-engines", "ofaEngines": "ofa-engines"}

func nvidiaCounters(amounts map[string]int64, at gpu.Placement) map[string]resourceapi.Counter {
	counters := map[string]resourceapi.Counter{}
	for name, amount := range amounts {
		counters[cmp.Or(nvidiaCounterNames[name], name)] = resourceapi.Counter{Value: *resource.NewQuantity(amount, resource.BinarySI)}
	}
	for slice := at.Start; slice < at.Start+at.Size; slice++ {
		counters[fmt.Sprintf("memory-slice-%d", slice)] = resourceapi.Counter{Value: *resource.NewQuantity(1, resource.BinarySI)}
	}
	return counters
}

func amounts(of map[string]int64) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	all := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	for name, amount := range of {
		all[resourceapi.QualifiedName(name)] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(amount, resource.BinarySI)}
	}
	return all
}

func text(value string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: &value}
}
