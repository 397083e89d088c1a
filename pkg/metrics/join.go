package metrics

import (
	"math"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Joined is a snapshot whose values have the names of the containers that they belong to. Nothing of it changes any more.
type Joined struct {
	exporter    Exporter
	boards      []*board
	allocations []*Allocation
	podLabels   map[string][]string
}

// board is a GPU with its MIG devices and what was found out of all of them.
type board struct {
	*GPU
	// whole is the GPU as a device, migs are its MIG devices, all is both.
	whole     *device
	migs, all []*device
	// foreign are its processes that belong to no container that has their device.
	foreign int
}

// device is a GPU or a MIG device with those that have it.
type device struct {
	gpu *GPU
	// mig is nil for the GPU itself.
	mig *MIGDevice
	// first says that it is the first MIG device of its GPU instance, whose values it shows; sole that it is the only one.
	first, sole bool
	allocations []*Allocation
	holders     []*holder
	// foreign is the memory of foreign processes on it.
	foreign float64
	// labels are those of its series.
	labels []byte
	// masked says that its values are not to be shown.
	masked bool
}

// holder is a container that has a device, with what it uses of it. NaN is no value.
type holder struct {
	Container
	claims                     []string
	ids                        []string
	perProcess                 bool
	memory, utilization, total float64
	processes                  []*Process
	// uses are by command, where the claim asks for them; labels are those of its series.
	uses   []commandUse
	labels []byte
	// podLabels are further ones: the chosen labels of the pod.
	podLabels []byte
}

// deviceKey names a device.
type deviceKey struct{ gpu, mig gpu.UUID }

// Join is that of a Joiner with nothing before.
func Join(snapshot *Snapshot, allocations *Allocations, exporter Exporter) *Joined {
	return new(Joiner).Join(snapshot, allocations, exporter)
}

// Join finds out which values belong to which containers. Before the first round and the first records, both may be nil.
func (joiner *Joiner) Join(snapshot *Snapshot, allocations *Allocations, exporter Exporter) *Joined {
	j := &Joined{exporter: exporter}
	if snapshot == nil {
		snapshot = &Snapshot{}
	}
	if allocations == nil {
		allocations = &Allocations{}
	}
	j.podLabels = allocations.PodLabels
	devices := map[deviceKey]*device{}
	for _, g := range distinct(snapshot.GPUs) {
		b := newBoard(g)
		j.boards = append(j.boards, b)
		for _, d := range b.all {
			devices[d.key()] = d
		}
	}
	containers := map[string]bool{}
	for i := range allocations.List {
		a := &allocations.List[i]
		j.allocations = append(j.allocations, a)
		for _, c := range a.Containers {
			if c.ID != "" {
				containers[c.ID] = true
			}
		}
		if d := devices[deviceKey{a.GPU, a.MIG}]; d != nil {
			d.allocate(a)
		}
	}
	for _, b := range j.boards {
		b.attribute(devices, containers)
		for _, d := range b.all {
			for _, h := range d.holders {
				h.podLabels = j.appendPodLabels(nil, h.PodUID, (*PodLabel).nativeName)
			}
		}
	}
	joiner.split(j.boards, j.allocations)
	return j
}

// distinct are GPUs that each have a UUID of their own: no two series have the same labels, and none has a name that is not known.
func distinct(gpus []*GPU) []*GPU {
	taken := map[gpu.UUID]bool{"": true}
	list := make([]*GPU, 0, len(gpus))
	for _, g := range gpus {
		if id := g.Identity.UUID; !taken[id] {
			taken[id] = true
			list = append(list, g)
		}
	}
	return list
}

func newBoard(g *GPU) *board {
	b := &board{GPU: g, whole: &device{gpu: g, sole: true, first: true}}
	ofInstance := map[int]int{}
	for _, m := range g.MIGDevices {
		ofInstance[m.GPUInstance]++
	}
	seen := map[int]bool{}
	for _, m := range g.MIGDevices {
		b.migs = append(b.migs, &device{gpu: g, mig: m, first: !seen[m.GPUInstance], sole: ofInstance[m.GPUInstance] == 1})
		seen[m.GPUInstance] = true
	}
	b.all = append([]*device{b.whole}, b.migs...)
	for _, d := range b.all {
		key := d.key()
		d.labels = deviceLabels(key.gpu, key.mig)
	}
	return b
}

func (d *device) key() deviceKey {
	if d.mig == nil {
		return deviceKey{gpu: d.gpu.Identity.UUID}
	}
	return deviceKey{d.gpu.Identity.UUID, d.mig.UUID}
}

func (d *device) values() *Values {
	if d.masked {
		return &Values{}
	}
	if d.mig == nil {
		return &d.gpu.Values
	}
	return &d.mig.Values
}

// value is a field's, NaN where there is none.
func (d *device) value(f Field) float64 {
	if v, ok := d.values().Get(f); ok {
		return v
	}
	return math.NaN()
}

// allocate notes that an allocation's containers have the device. A pod's container that was made again is the same one.
func (d *device) allocate(a *Allocation) {
	d.allocations = append(d.allocations, a)
	for _, c := range a.Containers {
		i := slices.IndexFunc(d.holders, func(h *holder) bool {
			return h.Namespace == c.Namespace && h.Pod == c.Pod && h.Name == c.Name
		})
		if i < 0 {
			i = len(d.holders)
			nan := math.NaN()
			d.holders = append(d.holders, &holder{Container: c, memory: nan, utilization: nan, total: nan, labels: containerLabels(c, a.GPU, a.MIG)})
		}
		h := d.holders[i]
		h.claims = append(h.claims, a.ClaimUID)
		h.perProcess = h.perProcess || a.Options.PerProcess
		if c.ID != "" {
			h.ids = append(h.ids, c.ID)
		}
	}
}

// holderOf is the container that has the device and that a process belongs to, nil for none.
func (d *device) holderOf(p *Process) *holder {
	for _, h := range d.holders {
		if p.ContainerID != "" && slices.Contains(h.ids, p.ContainerID) {
			return h
		}
	}
	return nil
}

// exclusive says that the device's values are those of its only container.
func (d *device) exclusive() bool {
	return d.sole && len(d.holders) == 1 && !slices.ContainsFunc(d.allocations, func(a *Allocation) bool { return !a.Exclusive() })
}

// ownAfter is how long after a claim was known to be prepared a round begins whose values are the claim's own: the driver's utilization is of
// the second before it is read.
const ownAfter = time.Second

// stale says that its values are of a round that began before one of its claims was prepared: other claims may have had it then, or a device
// with the same UUID.
func (d *device) stale() bool {
	return slices.ContainsFunc(d.allocations, func(a *Allocation) bool {
		return !a.Since.IsZero() && d.gpu.Began.Before(a.Since.Add(ownAfter))
	})
}

// complete says that every container that has the device is known to the runtime, so that any other one's process is foreign.
func (d *device) complete() bool {
	return !slices.ContainsFunc(d.allocations, func(a *Allocation) bool {
		return len(a.Containers) == 0 || slices.ContainsFunc(a.Containers, func(c Container) bool { return c.ID == "" })
	})
}

// attribute gives each container its part of the GPU's values. A process counts once, whatever number of lists has it.
func (b *board) attribute(devices map[deviceKey]*device, containers map[string]bool) {
	seen := map[uint32]bool{}
	for i := range b.Processes {
		p := &b.Processes[i]
		if seen[p.PID] || b.servesMPS(p, containers) {
			continue
		}
		seen[p.PID] = true
		d := devices[deviceKey{b.Identity.UUID, p.MIG}]
		if d == nil {
			continue
		}
		switch h := d.holderOf(p); {
		case h != nil:
			h.processes = append(h.processes, p)
		case p.MIG == "" && slices.ContainsFunc(b.migs, func(d *device) bool { return d.holderOf(p) != nil }):
			// A process of a GPU in MIG mode whose MIG device the driver does not say.
		case p.Start == 0 || p.Unresolved:
			// A process that had exited when /proc was read, that another pid namespace hides, or whose container is not known yet: a container
			// that was restarted while the runtime did not answer has the device, and allocations have its old id.
		case d.stale():
			// A process of those that had the device before, whose containers no claim has any more.
		case d.complete() || containers[p.ContainerID]:
			b.foreign++
			if !math.IsNaN(p.MemoryBytes) {
				d.foreign += p.MemoryBytes
			}
		}
	}
	b.share()
}

// servesMPS says that a process is an MPS server, which works for the containers: on a GPU that a claim has with MPS, and not of a container
// that has a device.
func (b *board) servesMPS(p *Process, containers map[string]bool) bool {
	if !p.MPSServer || containers[p.ContainerID] {
		return false
	}
	return slices.ContainsFunc(b.all, func(d *device) bool {
		return slices.ContainsFunc(d.allocations, func(a *Allocation) bool { return a.MPS })
	})
}
