package usage

import (
	"maps"
	"math"
	"slices"
)

// Sample is a value of a metric.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
	// Node is the node of the exporter; "" if unknown.
	Node string
}

// Load is how busy something is. Values that no metric reports are nil.
type Load struct {
	// Utilization is 1 for each device that works all the time.
	Utilization *float64 `json:"utilization,omitempty"`
	// MemoryUsed and MemoryTotal are in bytes, Power in watts.
	MemoryUsed  *float64 `json:"memoryUsedBytes,omitempty"`
	MemoryTotal *float64 `json:"memoryTotalBytes,omitempty"`
	Power       *float64 `json:"powerWatts,omitempty"`
}

// Add adds another load; values that one of them lacks stay.
func (l *Load) Add(other Load) {
	sum(&l.Utilization, other.Utilization)
	sum(&l.MemoryUsed, other.MemoryUsed)
	sum(&l.MemoryTotal, other.MemoryTotal)
	sum(&l.Power, other.Power)
}

func sum(to **float64, value *float64) {
	switch {
	case value == nil:
	case *to == nil:
		*to = new(*value)
	default:
		*to = new(**to + *value)
	}
}

// GPU is the load of a physical GPU.
type GPU struct {
	UUID string
	// Node is the node of its exporter; "" if unknown.
	Node string
	// Up reports whether the GPU responds; nil if unknown.
	Up *bool
	Load
}

// Name is the name of a pod.
type Name struct{ Namespace, Pod string }

// Pod is the load of the devices that a pod uses.
type Pod struct {
	Name
	// GPUs are the UUIDs of the physical GPUs, each once; Devices counts their devices: GPUs, MIG devices and shares.
	GPUs    []string
	Devices int
	// Load has no MemoryTotal if one of the devices is shared with other pods.
	Load
	// used and total count the series about memory.
	used, total int
}

// Usage is the load of GPUs and pods.
type Usage struct {
	GPUs map[string]*GPU
	Pods map[Name]*Pod
}

// device identifies a device, and the pod that uses it.
type device struct {
	Name
	gpu, mig, claim, share string
}

// series identifies a time series without the labels of the scrape.
type series struct {
	metric, container string
	device
}

// totals is a Usage under construction.
type totals struct {
	Usage
	found map[series]bool
	// migs are the MIG devices of GPUs, by the UUIDs of both.
	migs map[string]map[string]*Load
}

// Of sums up samples. A series that was scraped twice counts once.
func Of(samples []Sample) *Usage {
	t := &totals{
		Usage: Usage{GPUs: map[string]*GPU{}, Pods: map[Name]*Pod{}},
		found: map[series]bool{}, migs: map[string]map[string]*Load{},
	}
	for i := range samples {
		t.add(&samples[i])
	}
	t.partition()
	for _, p := range t.Pods {
		if p.total < p.used {
			p.MemoryTotal = nil
		}
	}
	return &t.Usage
}

// add adds a sample.
func (t *totals) add(s *Sample) {
	m := metrics[s.Name]
	of := device{gpu: s.label("gpu_uuid"), mig: s.label("mig_uuid")}
	if m.family == other || of.gpu == "" || math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
		return
	}
	id := series{metric: s.Name, device: of}
	switch m.family {
	case container:
		of.Name = s.pod()
		id.container = s.label("container")
	case allocation: // the containers of a pod share its devices
		of.Name, of.claim, of.share = s.pod(), s.label("claim"), s.label("share_id")
	default: // labels of the scrape may name a pod
	}
	id.device = of
	if t.found[id] {
		return
	}
	t.found[id] = true
	switch m.family {
	case gpu:
		t.gpu(of.gpu, s).set(m.value, s.Value)
	case mig:
		t.mig(of).set(m.value, s.Value)
	case container:
		t.pod(of).add(m.value, s.Value)
	case allocation:
		t.pod(of).Devices++
	default:
	}
}

// add adds a value of a container.
func (p *Pod) add(v value, to float64) {
	load := Load{}
	load.set(v, to)
	p.Add(load)
	switch v {
	case memoryUsed:
		p.used++
	case memoryTotal:
		p.total++
	default:
	}
}

// partition computes the utilization of GPUs with MIG devices, for which the driver reports none: MIG devices count by their memory.
func (t *totals) partition() {
	for uuid, devices := range t.migs {
		g := t.GPUs[uuid]
		if g == nil || g.Utilization != nil || g.MemoryTotal == nil || *g.MemoryTotal <= 0 {
			continue
		}
		busy, known := 0.0, false
		for _, name := range slices.Sorted(maps.Keys(devices)) {
			if d := devices[name]; d.Utilization != nil && d.MemoryTotal != nil {
				busy, known = busy+*d.Utilization**d.MemoryTotal, true
			}
		}
		if known {
			g.Utilization = new(busy / *g.MemoryTotal)
		}
	}
}

// mig returns a MIG device.
func (t *totals) mig(of device) *Load {
	if t.migs[of.gpu] == nil {
		t.migs[of.gpu] = map[string]*Load{}
	}
	if t.migs[of.gpu][of.mig] == nil {
		t.migs[of.gpu][of.mig] = &Load{}
	}
	return t.migs[of.gpu][of.mig]
}

// pod returns the pod of a sample.
func (s *Sample) pod() Name { return Name{s.label("namespace"), s.label("pod")} }

// label returns a label. Prometheus keeps labels of the exporter that the labels of the scrape hide, with a prefix.
func (s *Sample) label(name string) string {
	if value, ok := s.Labels["exported_"+name]; ok {
		return value
	}
	return s.Labels[name]
}

// set sets a value.
func (l *Load) set(v value, to float64) {
	switch v {
	case utilization:
		l.Utilization = &to
	case memoryUsed:
		l.MemoryUsed = &to
	case memoryTotal:
		l.MemoryTotal = &to
	case power:
		l.Power = &to
	default:
	}
}

// set sets a value.
func (g *GPU) set(v value, to float64) {
	if v == up {
		g.Up = new(to == 1)
		return
	}
	g.Load.set(v, to)
}

// gpu returns the GPU of a sample.
func (u *Usage) gpu(uuid string, s *Sample) *GPU {
	if u.GPUs[uuid] == nil {
		u.GPUs[uuid] = &GPU{UUID: uuid, Node: s.Node}
	}
	return u.GPUs[uuid]
}

// pod returns the pod of a device.
func (u *Usage) pod(of device) *Pod {
	if u.Pods[of.Name] == nil {
		u.Pods[of.Name] = &Pod{Name: of.Name}
	}
	p := u.Pods[of.Name]
	if !slices.Contains(p.GPUs, of.gpu) {
		p.GPUs = append(p.GPUs, of.gpu)
	}
	return p
}
