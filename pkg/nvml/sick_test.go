package nvml

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// sickness is the health of a fakeGPU.
type sickness struct {
	// fields are the values of fields; a missing one is not supported. fieldReturns are the codes of fields.
	fields       map[uint32]uint32
	fieldReturns map[uint32]nvml.Return
	fabric       nvml.GpuFabricInfo
	// eventTypes are the supported ones.
	eventTypes uint64
}

func healthy() sickness {
	return sickness{
		fields: map[uint32]uint32{230: 0, 144: 0, 145: 0}, fieldReturns: map[uint32]nvml.Return{},
		eventTypes: healthEvents | nvml.EventTypePState,
	}
}

// sicken changes the health of a GPU.
func (g *fakeGPU) sicken(how func(*sickness)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	how(&g.sickness)
}

func (g *fakeGPU) GetFieldValues(values []nvml.FieldValue) nvml.Return {
	ret := g.call("nvmlDeviceGetFieldValues")
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range values {
		v := &values[i]
		value, known := g.fields[v.FieldId]
		code := g.fieldReturns[v.FieldId]
		if !known && code == nvml.SUCCESS {
			code = nvml.ERROR_NOT_SUPPORTED
		}
		v.NvmlReturn = uint32(code)
		binary.LittleEndian.PutUint32(v.Value[:], value)
	}
	return ret
}

func (g *fakeGPU) GetGpuFabricInfo() (nvml.GpuFabricInfo, nvml.Return) {
	ret := g.call("nvmlDeviceGetGpuFabricInfo")
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fabric, ret
}

func (g *fakeGPU) GetSupportedEventTypes() (uint64, nvml.Return) {
	ret := g.call("nvmlDeviceGetSupportedEventTypes")
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.eventTypes, ret
}

func (g *fakeGPU) RegisterEvents(types uint64, set nvml.EventSet) nvml.Return {
	return g.register(g, types, set)
}

func (r renewed) RegisterEvents(types uint64, set nvml.EventSet) nvml.Return {
	return r.register(r, types, set)
}

func (g *fakeGPU) register(handle nvml.Device, types uint64, set nvml.EventSet) nvml.Return {
	ret := g.call("nvmlDeviceRegisterEvents")
	g.mu.Lock()
	defer g.mu.Unlock()
	if ret == nvml.SUCCESS && types&^g.eventTypes != 0 {
		ret = nvml.ERROR_NOT_SUPPORTED
	}
	if ret == nvml.SUCCESS {
		set.(*fakeSet).add(handle)
	}
	return ret
}

func (d *fakeDriver) EventSetCreate() (nvml.EventSet, nvml.Return) {
	ret := d.call("nvmlEventSetCreate")
	d.mu.Lock()
	defer d.mu.Unlock()
	set := &fakeSet{driver: d, events: make(chan nvml.EventData, 100), handles: map[nvml.Device]bool{}}
	if ret == nvml.SUCCESS {
		d.sets = append(d.sets, set)
	}
	return set, ret
}

// set lets calls of the driver return a code from now on.
func (d *fakeDriver) set(ret nvml.Return, symbols ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.returns = map[string]nvml.Return{}
	for _, symbol := range symbols {
		d.returns[symbol] = ret
	}
}

// open returns the event sets that were not freed.
func (d *fakeDriver) open() (all []*fakeSet) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, set := range d.sets {
		if !set.isFreed() {
			all = append(all, set)
		}
	}
	return all
}

// fakeSet is an event set. Using it after it was freed, or freeing it during a wait, would be a crash in a real library.
type fakeSet struct {
	nvml.EventSet

	driver *fakeDriver
	events chan nvml.EventData

	mu      sync.Mutex
	handles map[nvml.Device]bool
	waiting int
	freed   bool
	hangs   chan struct{}
}

// hang makes waits hang until release is called.
func (f *fakeSet) hang() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hangs = make(chan struct{})
	return func() { close(f.hangs) }
}

func (f *fakeSet) isFreed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.freed
}

// has reports whether the handle was registered.
func (f *fakeSet) has(handle nvml.Device) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.handles[handle]
}

func (f *fakeSet) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.handles)
}

func (f *fakeSet) add(handle nvml.Device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.freed {
		panic("an event set is used after it was freed")
	}
	f.handles[handle] = true
}

func (f *fakeSet) wait(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.freed {
		panic("waiting on an event set that was freed")
	}
	f.waiting += n
}

func (f *fakeSet) Wait(milliseconds uint32) (nvml.EventData, nvml.Return) {
	f.wait(1)
	defer f.wait(-1)
	if ret := f.driver.call("nvmlEventSetWait_v2"); ret != nvml.SUCCESS {
		return nvml.EventData{}, ret
	}
	f.mu.Lock()
	hangs := f.hangs
	f.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	select {
	case e := <-f.events:
		return e, nvml.SUCCESS
	case <-time.After(time.Duration(milliseconds) * time.Millisecond):
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
}

func (f *fakeSet) Free() nvml.Return {
	ret := f.driver.call("nvmlEventSetFree")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.freed || f.waiting > 0 {
		panic("an event set is freed twice or during a wait")
	}
	f.freed = ret == nvml.SUCCESS
	return ret
}
