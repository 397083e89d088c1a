package labels

import (
	"encoding/json"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// annotationFacts holds the facts of a cached ResourceSlice. No ResourceSlice of the API server has it.
const annotationFacts = "prism.dev/facts"

// Facts are the contents of one ResourceSlice that labels follow from.
type Facts struct {
	// Pool, Generation and Count identify the version of the pool, and say how many ResourceSlices it has.
	Pool       string `json:"pool"`
	Generation int64  `json:"generation"`
	Count      int64  `json:"count"`
	// GPUs are the GPUs with devices in the ResourceSlice, in the order of their first devices.
	GPUs []GPUFacts `json:"gpus,omitempty"`
	// Memory is the memory of a GPU in bytes, by the name of its counter set.
	Memory map[string]int64 `json:"memory,omitempty"`
}

// GPUFacts are the facts of one GPU in one ResourceSlice. An empty or zero value is unknown.
type GPUFacts struct {
	UUID    string `json:"uuid"`
	Product string `json:"product,omitempty"`
	// Compute is the compute capability, Driver and CUDA are versions, as published: "9.0.0", "580.95.5", "13.0.0".
	Compute string `json:"compute,omitempty"`
	Driver  string `json:"driver,omitempty"`
	CUDA    string `json:"cuda,omitempty"`
	// Memory is the memory in bytes.
	Memory int64 `json:"memory,omitempty"`
	// Counters is the name of the counter set of the GPU.
	Counters string `json:"counters,omitempty"`
	// Families are the kinds of devices, each once.
	Families []Family `json:"families,omitempty"`
}

// Family is one kind of devices of a GPU.
type Family struct {
	Type gpu.DeviceType `json:"type"`
	// Replicas is the number of claims that share the GPU; 0 for kinds without shares.
	Replicas int64 `json:"replicas,omitempty"`
	// Renamed is set if the shares have a resource name of their own.
	Renamed bool `json:"renamed,omitempty"`
}

// The values of attributes that the driver does not report.
const (
	unknownText    = "unknown"
	unknownVersion = "0.0.0"
)

// FactsOf reads a ResourceSlice of the driver.
func FactsOf(slice *resourceapi.ResourceSlice, driver string) *Facts {
	facts := &Facts{Pool: slice.Spec.Pool.Name, Generation: slice.Spec.Pool.Generation, Count: slice.Spec.Pool.ResourceSliceCount}
	for _, set := range slice.Spec.SharedCounters {
		memory, found := set.Counters["memory"]
		if !found {
			continue
		}
		if facts.Memory == nil {
			facts.Memory = map[string]int64{}
		}
		facts.Memory[set.Name] = memory.Value.Value()
	}
	at := map[string]int{}
	for i := range slice.Spec.Devices {
		d := device{&slice.Spec.Devices[i], driver}
		uuid, family := d.text("parentUUID"), d.family()
		if uuid == "" || family.Type == "" {
			continue
		}
		n, found := at[uuid]
		if !found {
			n = len(facts.GPUs)
			at[uuid] = n
			facts.GPUs = append(facts.GPUs, GPUFacts{UUID: uuid})
		}
		facts.GPUs[n].merge(d.facts(family))
	}
	return facts
}

// merge adds the facts that another ResourceSlice or device has of the same GPU. Known values stay.
func (g *GPUFacts) merge(o GPUFacts) {
	for _, field := range []struct{ to, from *string }{
		{&g.Product, &o.Product}, {&g.Compute, &o.Compute}, {&g.Driver, &o.Driver}, {&g.CUDA, &o.CUDA}, {&g.Counters, &o.Counters},
	} {
		if *field.to == "" {
			*field.to = *field.from
		}
	}
	if g.Memory == 0 {
		g.Memory = o.Memory
	}
	for _, family := range o.Families {
		if !contains(g.Families, family) {
			g.Families = append(g.Families, family)
		}
	}
}

func contains(families []Family, family Family) bool {
	for _, f := range families {
		if f == family {
			return true
		}
	}
	return false
}

// device reads the attributes of one device.
type device struct {
	*resourceapi.Device
	driver string
}

// attribute is an attribute in the driver's own domain, which may be written in the name.
func (d device) attribute(name string) resourceapi.DeviceAttribute {
	if value, found := d.Attributes[resourceapi.QualifiedName(name)]; found {
		return value
	}
	return d.Attributes[resourceapi.QualifiedName(d.driver+"/"+name)]
}

// text is a string, empty if it is not known.
func (d device) text(name string) string {
	if value := d.attribute(name).StringValue; value != nil && *value != unknownText {
		return *value
	}
	return ""
}

// version is a version, empty if it is not known.
func (d device) version(name string) string {
	if value := d.attribute(name).VersionValue; value != nil && *value != unknownVersion {
		return *value
	}
	return ""
}

// family is the kind of the device; without a type for devices that no program computes with.
func (d device) family() Family {
	family := Family{Type: gpu.DeviceType(d.text(gpu.AttributeType))}
	switch {
	case family.Type == gpu.TypeGPU, family.Type == gpu.TypeMIG:
		return family
	case family.Type.EntireGPU(): // shared by several claims
		if replicas := d.attribute(gpu.AttributeReplicas).IntValue; replicas != nil {
			family.Replicas = *replicas
		}
		name := d.text(gpu.AttributeShareName)
		family.Renamed = name != "" && name != gpu.NotApplicable
		return family
	default:
		return Family{}
	}
}

// facts are the facts that the device has of its GPU. The memory of a MIG device or an MPS share is not the memory of the GPU.
func (d device) facts(family Family) GPUFacts {
	facts := GPUFacts{
		Product: d.text("productName"), Compute: d.version("cudaComputeCapability"), Driver: d.version("driverVersion"), CUDA: d.version("cudaDriverVersion"),
		Families: []Family{family},
	}
	if memory, found := d.Capacity["memory"]; found && (family.Type == gpu.TypeGPU || family.Type == gpu.TypeTimeSlice) {
		facts.Memory = memory.Value.Value()
	}
	if len(d.ConsumesCounters) > 0 {
		facts.Counters = d.ConsumesCounters[0].CounterSet
	}
	return facts
}

// Transform reduces cached ResourceSlices with another transformation, and adds their facts, pool and node to the result.
func Transform(driver string, reduce cache.TransformFunc) cache.TransformFunc {
	return func(object any) (any, error) {
		slice, ok := object.(*resourceapi.ResourceSlice)
		if !ok {
			return reduce(object)
		}
		text := slice.Annotations[annotationFacts] // of one that is reduced already
		if text == "" {
			raw, err := json.Marshal(FactsOf(slice, driver))
			if err != nil {
				return nil, fmt.Errorf("reducing ResourceSlice %s: %w", slice.Name, err)
			}
			text = string(raw)
		}
		reduced, err := reduce(object)
		if err != nil {
			return nil, err
		}
		small, ok := reduced.(*resourceapi.ResourceSlice)
		if !ok {
			return reduced, nil
		}
		small.Annotations = map[string]string{annotationFacts: text}
		small.Spec.NodeName, small.Spec.Pool = slice.Spec.NodeName, slice.Spec.Pool
		return small, nil
	}
}

// cachedFacts are the facts of a ResourceSlice of the cache.
func cachedFacts(slice *resourceapi.ResourceSlice) (*Facts, error) {
	facts := &Facts{}
	if err := json.Unmarshal([]byte(slice.Annotations[annotationFacts]), facts); err != nil {
		return nil, fmt.Errorf("reading the facts of ResourceSlice %s: %w", slice.Name, err)
	}
	return facts, nil
}
