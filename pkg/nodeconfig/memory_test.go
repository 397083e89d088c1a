package nodeconfig_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

// TestResolve_Memory_OfGPUsWithout: the configuration sets the memory of GPUs for which the driver reports none, even if the system reports
// another amount, and of no other GPU; MPS shares divide it.
func TestResolve_Memory_OfGPUsWithout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		capacity gpu.Capacity
		unified  bool
		want     uint64
	}{
		"the system's":   {gpu.Capacity{MemoryBytes: 119 << 30}, true, 64 << 30},
		"none":           {gpu.Capacity{}, true, 64 << 30},
		"not known":      {gpu.Capacity{}, false, 64 << 30},
		"the driver has": {gpu.Capacity{MemoryBytes: 80 << 30}, false, 80 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &gpu.Node{Driver: gpu.Driver{CUDAVersion: "13.0"}, GPUs: gpus()[:1]}
			node.GPUs[0].Capacity, node.GPUs[0].UnifiedMemory = c.capacity, c.unified
			layout, refused, err := nodeconfig.Resolve(config(t, "[{modes: [whole, mps], memory: 64Gi, mps: {replicas: 2}}]"), node)
			require.NoError(t, err)
			assert.Empty(t, refused)
			assert.Equal(t, int64(c.want)-512*mi, layout[h0].MPS.Memory.Total)
			assert.Equal(t, c.capacity, node.GPUs[0].Capacity, "the node is as it was")
			sized := layout.Sized(node)
			assert.Equal(t, c.want, sized.GPUs[0].Capacity.MemoryBytes)
			if c.want == c.capacity.MemoryBytes {
				assert.Same(t, node, sized)
			}
		})
	}
}
