package plugin

import (
	"sync"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// failedDevices are the devices that claims cannot use until they are restored, by type and GPU. It also wakes the watchers of the node's
// devices.
type failedDevices struct {
	taint   func(rules []publish.TaintRule)
	mu      sync.Mutex
	gpus    map[gpu.DeviceType]map[gpu.UUID]bool
	changed chan struct{} // closed and replaced at every change
}

func newFailedDevices(taint func(rules []publish.TaintRule)) *failedDevices {
	return &failedDevices{taint: taint, gpus: map[gpu.DeviceType]map[gpu.UUID]bool{}, changed: make(chan struct{})}
}

// set replaces the GPUs whose devices of a type failed, and keeps new claims from these devices.
func (f *failedDevices) set(device gpu.DeviceType, gpus []gpu.UUID) {
	failed := map[gpu.UUID]bool{}
	for _, id := range gpus {
		failed[id] = true
	}
	f.mu.Lock()
	f.gpus[device] = failed
	f.mu.Unlock()
	f.taint(publish.FailedTaints(device, gpus))
	f.wake()
}

// restores reports whether one process of the node restores devices of a type, so that it alone knows which failed.
func (f *failedDevices) restores(device gpu.DeviceType) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gpus[device] != nil
}

// has reports whether the devices of a type of a GPU failed.
func (f *failedDevices) has(device gpu.DeviceType, id gpu.UUID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gpus[device][id]
}

// next returns a channel that is closed at the next change.
func (f *failedDevices) next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// wake wakes the watchers, also after a change of the advertised devices.
func (f *failedDevices) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
}
