package health

import (
	"fmt"
	"sync"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// facts are the last known facts of the node's GPUs.
type facts struct {
	view func() *inventory.View

	mu    sync.Mutex
	known map[gpu.UUID]gpu.GPU
}

// add adds facts that another process has stored.
func (f *facts) add(lost []gpu.GPU) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range lost {
		f.known[g.UUID] = g
	}
}

// of returns the facts of a GPU.
func (f *facts) of(id gpu.UUID) (gpu.GPU, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.view().Node.GPUs {
		f.known[g.UUID] = g
	}
	g, known := f.known[id]
	return g, known
}

// lost returns the facts of GPUs that do not answer.
func (f *facts) lost(all []finding.Finding) (lost []gpu.GPU) {
	for _, found := range all {
		if found.Key != finding.GPULost || found.Value == finding.DeviceNode {
			continue
		}
		if g, known := f.of(found.GPU); known {
			g.Lost = true
			lost = append(lost, g)
		}
	}
	return lost
}

// name names a GPU for administrators.
func (f *facts) name(id gpu.UUID) string {
	if g, known := f.of(id); known {
		return fmt.Sprintf("GPU %d (%s)", g.Index, id)
	}
	return "GPU " + string(id)
}
