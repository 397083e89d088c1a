package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// facts are the last known facts of the node's GPUs.
type facts struct {
	view func() *inventory.View

	mu    sync.Mutex
	known map[gpu.UUID]gpu.GPU
}

// add adds facts that another process has stored.
func (f *facts) add(gpus []gpu.GPU) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range gpus {
		f.known[g.UUID] = g
	}
}

// of returns the facts of a GPU.
func (f *facts) of(id gpu.UUID) (gpu.GPU, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.learn()
	g, known := f.known[id]
	return g, known
}

// last returns the last facts of all GPUs of this boot.
func (f *facts) last() []gpu.GPU {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.learn()
	return slices.SortedFunc(maps.Values(f.known), func(a, b gpu.GPU) int { return cmp.Compare(a.UUID, b.UUID) })
}

// learn adds the GPUs of the present view. The caller holds mu.
func (f *facts) learn() {
	for _, g := range f.view().Node.GPUs {
		f.known[g.UUID] = g
	}
}

// name names a GPU for administrators.
func (f *facts) name(id gpu.UUID) string {
	if g, known := f.of(id); known {
		return fmt.Sprintf("GPU %d (%s)", g.Index, id)
	}
	return "GPU " + string(id)
}
