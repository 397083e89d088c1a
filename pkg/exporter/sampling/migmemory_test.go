package sampling

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// migHandle is a MIG device that reports its memory, or does not support it.
type migHandle struct {
	bareGPU
	answer nvml.Return
}

func (m *migHandle) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) { //nolint:revive // NVML's name
	return nvml.Memory_v2{Total: 1000, Used: 300, Free: 600, Reserved: 100}, m.answer
}

func (*migHandle) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	return nvml.Memory{Total: 2000, Free: 500}, nvml.SUCCESS
}

// If one MIG device does not support a call, for instance while it is destroyed, the GPU and its other MIG devices are not affected.
func TestMIGValues_OneUnsupported_OthersRead(t *testing.T) {
	t.Parallel()
	d := bareDriver(t, &bare{}, &bareGPU{})
	g := d.devices["GPU-0"]
	g.handle = newAnswering()
	odd := &migHandle{answer: nvml.ERROR_NOT_SUPPORTED}
	for uuid, handle := range map[gpu.UUID]nvml.Device{"MIG-odd": odd, "MIG-other": &migHandle{}} {
		g.migDevices = append(g.migDevices, migDevice{handle: handle, facts: metrics.MIGDevice{UUID: uuid}})
	}
	memory := func(uuid gpu.UUID) map[metrics.Field]float64 {
		m := &metrics.MIGDevice{UUID: uuid}
		require.NoError(t, d.MIGValues(t.Context(), "GPU-0", m, allFields()))
		return valuesOf(&m.Values)
	}
	all := map[metrics.Field]float64{
		metrics.FieldMemoryTotal: 1000, metrics.FieldMemoryUsed: 300, metrics.FieldMemoryFree: 600, metrics.FieldMemoryReserved: 100,
	}
	assert.Equal(t, map[metrics.Field]float64{metrics.FieldMemoryTotal: 2000, metrics.FieldMemoryFree: 500}, memory("MIG-odd"))
	assert.Equal(t, all, memory("MIG-other"))
	odd.answer = nvml.SUCCESS
	assert.Equal(t, all, memory("MIG-odd"), "in the next round")
	assert.Empty(t, g.unsupported)
}
