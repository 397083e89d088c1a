package plugin

import (
	"sync"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// failedDevices are the devices that claims cannot use until they are restored, by type and GPU. It also wakes those who watch the devices of
// the node.
type failedDevices struct {
	mu      sync.Mutex
	gpus    map[gpu.DeviceType]map[gpu.UUID]bool
	changed chan struct{} // closed and replaced at every change
}

func newFailedDevices() *failedDevices {
	return &failedDevices{gpus: map[gpu.DeviceType]map[gpu.UUID]bool{}, changed: make(chan struct{})}
}

// set replaces the GPUs whose devices of a type failed.
func (f *failedDevices) set(device gpu.DeviceType, gpus []gpu.UUID) {
	failed := map[gpu.UUID]bool{}
	for _, id := range gpus {
		failed[id] = true
	}
	f.mu.Lock()
	f.gpus[device] = failed
	f.mu.Unlock()
	f.wake()
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
