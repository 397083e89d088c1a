package layout

import (
	"context"
	"maps"
	"sync"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// publishedNames takes the names of the devices of the node's pool each time they are published.
type publishedNames struct{ published chan []string }

func (s publishedNames) Publish(resources resourceslice.DriverResources) {
	var names []string
	for _, slice := range resources.Pools["n0"].Slices {
		for i := range slice.Devices {
			name := slice.Devices[i].Name
			for _, taint := range slice.Devices[i].Taints {
				name += " " + taint.Key
			}
			names = append(names, name)
		}
	}
	s.published <- names
}

// guard is held while tests set values that fakes read, and while fakes count, in the background.
var guard sync.Mutex

// handOver separates a test's write from the wait during which fakes read it: fakes run only while the test waits, which the race detector
// does not know.
func handOver() {
	guard.Lock()
	defer guard.Unlock()
}

// ask lets a fake answer, unless the context has ended.
func ask[T any](ctx context.Context, answer func() (T, error)) (T, error) {
	guard.Lock()
	defer guard.Unlock()
	if err := ctx.Err(); err != nil {
		var nothing T
		return nothing, err
	}
	return answer()
}

// memory is a Store that lasts as long as the test.
type memory struct {
	layout gpu.Layout
	flags  *v1alpha1.NodeFlags
	err    error
	// late is an error of Save after it has saved.
	late error
	// saving is called before something is saved; nil is allowed.
	saving func(saved Saved)
}

func (m *memory) Load() (Saved, error) {
	guard.Lock()
	defer guard.Unlock()
	return Saved{GPUs: m.layout, Flags: m.flags}, m.err
}

func (m *memory) Save(saved Saved) error {
	if m.saving != nil {
		m.saving(saved)
	}
	guard.Lock()
	defer guard.Unlock()
	if m.err != nil {
		return m.err
	}
	m.layout, m.flags = maps.Clone(saved.GPUs), saved.Flags
	return m.late
}

func (m *memory) Sweep() error {
	guard.Lock()
	defer guard.Unlock()
	return m.err
}
