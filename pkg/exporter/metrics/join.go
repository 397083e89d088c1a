package metrics

import (
	"math"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Joined is a snapshot whose values are attributed to containers. It is immutable.
type Joined struct {
	exporter    Exporter
	boards      []*board
	allocations []*Allocation
	podLabels   map[string][]string
}

// board is a GPU with its MIG devices and the results of the join.
type board struct {
	*GPU
	// whole is the GPU as a device, migs are its MIG devices, all is both.
	whole     *device
	migs, all []*device
	// foreign counts its processes that belong to no container using their device.
	foreign int
}

// device is a GPU or a MIG device with the containers that use it.
type device struct {
	gpu *GPU
	// mig is nil for the GPU itself.
	mig *MIGDevice
	// first is set for the first MIG device of a GPU instance, which shows the values of the instance; sole, if there is no other.
	first, sole bool
	allocations []*Allocation
	holders     []*holder
	// foreign is the memory of foreign processes on it.
	foreign float64
	// labels are the labels of its series.
	labels []byte
	// masked hides its values.
	masked bool
}

// holder is a container and its usage of a device. NaN is no value.
type holder struct {
	Container
	claims                     []string
	ids                        []string
	perProcess                 bool
	memory, utilization, total float64
	processes                  []*Process
	// uses are by command, if the claim requests it; labels are the labels of its series.
	uses   []commandUse
	labels []byte
	// podLabels are the selected labels of the pod.
	podLabels []byte
}

// deviceKey names a device.
type deviceKey struct{ gpu, mig gpu.UUID }

// Join joins without earlier rounds.
func Join(snapshot *Snapshot, allocations *Allocations, exporter Exporter) *Joined {
	return new(Joiner).Join(snapshot, allocations, exporter)
}

// Join attributes values to containers. Before the first round and the first records, both may be nil.
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

// distinct are GPUs with distinct, known UUIDs, so that no two series have the same labels.
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

// value is the value of a field, NaN if absent.
func (d *device) value(f Field) float64 {
	if v, ok := d.values().Get(f); ok {
		return v
	}
	return math.NaN()
}

// allocate adds an allocation's containers to the device. A recreated container of the same pod counts as the same.
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

// holderOf is the container that a process belongs to and that uses the device, nil for none.
func (d *device) holderOf(p *Process) *holder {
	for _, h := range d.holders {
		if p.ContainerID != "" && slices.Contains(h.ids, p.ContainerID) {
			return h
		}
	}
	return nil
}

// exclusive reports whether the device's values belong to its only container.
func (d *device) exclusive() bool {
	return d.sole && len(d.holders) == 1 && !slices.ContainsFunc(d.allocations, func(a *Allocation) bool { return !a.Exclusive() })
}

// ownAfter is the time between the preparation of a claim and the first round whose values belong to the claim: the driver reports
// utilization of the second before it is read.
const ownAfter = time.Second

// stale reports whether its round began before one of its claims was prepared: other claims may then have used it, or a device with the
// same UUID.
func (d *device) stale() bool {
	return slices.ContainsFunc(d.allocations, func(a *Allocation) bool {
		return !a.Since.IsZero() && d.gpu.Began.Before(a.Since.Add(ownAfter))
	})
}

// complete reports whether the runtime knows every container that uses the device, so that any other process is foreign.
func (d *device) complete() bool {
	return !slices.ContainsFunc(d.allocations, func(a *Allocation) bool {
		return len(a.Containers) == 0 || slices.ContainsFunc(a.Containers, func(c Container) bool { return c.ID == "" })
	})
}

// attribute divides the GPU's values among containers. A process counts once, even if it is in several lists.
func (b *board) attribute(devices map[deviceKey]*device, containers map[string]bool) {
	seen := map[uint32]bool{}
	for i := range b.Processes {
		p := &b.Processes[i]
		if seen[p.PID] || b.serves(p, containers) {
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
			// A process on a GPU in MIG mode for which the driver reports no MIG device.
		case p.Start == 0 || p.Unresolved:
			// A process that exited before /proc was read, that is in another pid namespace, or whose container is unknown: while the runtime does
			// not answer, allocations contain the old id of a restarted container.
		case d.stale():
			// A process of the previous user of the device, whose containers belong to no claim any more.
		case d.complete() || containers[p.ContainerID]:
			b.foreign++
			if !math.IsNaN(p.MemoryBytes) {
				d.foreign += p.MemoryBytes
			}
		}
	}
	b.share()
}

// serves reports whether a process works for containers: some use the GPU through a server, and the process belongs to no container that
// uses a device.
func (b *board) serves(p *Process, containers map[string]bool) bool {
	if !p.ServesClients || containers[p.ContainerID] {
		return false
	}
	return slices.ContainsFunc(b.all, func(d *device) bool {
		return slices.ContainsFunc(d.allocations, func(a *Allocation) bool { return a.ThroughServer })
	})
}
