package inventory_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// withheld are the functions without whose answer no GPU is advertised: with any error, or only if the answer is unknown.
var (
	always = []string{
		"nvmlInit_v2", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
		"nvmlDeviceGetPciInfo_v3",
	}
	open = []string{"nvmlDeviceGetPerformanceState", "nvmlDeviceGetMigMode"}
)

// TestInventory_EachCallRefused_WholeGPUsStay: refuses every function that the product calls on a node, one by one.
func TestInventory_EachCallRefused_WholeGPUsStay(t *testing.T) {
	t.Parallel()
	n := sandboxed(t, model.Spec{Name: "node", Boards: []string{"h100-80", "t4"}, Minors: []int{3, 1}})
	require.NoError(t, os.WriteFile(filepath.Join(n.root, "proc/meminfo"), []byte("MemTotal:       125829120 kB\nMemFree: 1 kB\n"), 0o600))
	complete := n.restart(t)
	require.Len(t, complete.Node.GPUs, 2)
	for _, symbol := range called(n.hardware) {
		for _, ret := range []model.Return{model.NotSupported, model.Unknown} {
			_, err := n.hardware.Faults.Add(model.Fault{Effect: model.EffectError, Return: ret, GPU: model.AnyGPU, Call: symbol})
			require.NoError(t, err)
			s := n.restart(t)
			if slices.Contains(always, symbol) || ret == model.Unknown && slices.Contains(open, symbol) {
				assert.Empty(t, s.Node.GPUs, "%s: %v", symbol, ret)
			} else {
				requireWhole(t, symbol, ret, complete, s)
			}
			n.hardware.Faults.Clear()
			if ret == model.Unknown {
				require.Eventually(t, func() bool { return assert.ObjectsAreEqual(complete.Node, n.inspect(t).Node) }, time.Minute, time.Millisecond,
					"%s is asked again", symbol)
			}
		}
	}
}

// called returns the functions that were called on a node.
func called(hardware *model.Node) []string {
	all := map[string]bool{}
	for _, process := range hardware.Calls.List() {
		for symbol := range process.Counts {
			all[symbol] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// requireWhole checks that all GPUs are whole devices that can be prepared.
func requireWhole(t *testing.T, symbol string, ret model.Return, complete, s seen) {
	t.Helper()
	require.Empty(t, s.Err, "%s: %v", symbol, ret)
	require.Len(t, s.Node.GPUs, len(complete.Node.GPUs), "%s: %v", symbol, ret)
	for i := range s.Node.GPUs {
		g, known := &s.Node.GPUs[i], &complete.Node.GPUs[i]
		assert.Equal(t, []gpu.Device{gpu.Whole{GPU: g}}, gpu.Layout{}.Of(g).Devices(g))
		assert.Equal(t, known.UUID, g.UUID)
		assert.Equal(t, known.PCI, g.PCI)
		assert.Equal(t, known.Minor, g.Minor, "%s: %v: /proc has it", symbol, ret)
		memory := known.Capacity.MemoryBytes
		if symbol == "nvmlDeviceGetMemoryInfo" {
			memory = 0
			if ret == model.NotSupported {
				memory = 120 << 30
			}
		}
		assert.Equal(t, memory, g.Capacity.MemoryBytes, "%s: %v", symbol, ret)
	}
}

// TestInventory_DeviceNodeRemoved_MissingUntilRestored uses the files of a simulated driver.
func TestInventory_DeviceNodeRemoved_MissingUntilRestored(t *testing.T) {
	t.Parallel()
	n := sandboxed(t, model.Spec{Name: "node", Boards: []string{"h100-80", "t4"}, Minors: []int{3, 1}})
	missing := func() (paths []string) {
		for _, g := range n.inspect(t).Node.GPUs {
			paths = append(paths, g.MissingNode)
		}
		return paths
	}
	assert.Equal(t, []string{"", ""}, missing())
	n.removeNode(t, "nvidia3")
	assert.Equal(t, []string{"/dev/nvidia3", ""}, missing())
	n.restoreNodes(t)
	assert.Equal(t, []string{"", ""}, missing())
}
