package health

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/fakes"
)

func TestDriverEvents_DriverAndGPUsChange_EachChangeReported(t *testing.T) {
	t.Parallel()
	m := fakes.TwoGPUs()
	inv := m.Inventory(t)
	written := make(fakes.Events, 16)
	stop := fakes.Run(t, DriverEvents{Inventory: inv, Events: written}.Run)

	m.Change(t, inv, func() { m.Gone = gpu.ErrDriverNotLoaded })
	assert.Equal(t, "Warning NVIDIADriverUnavailable Discover: No GPU is advertised: NVIDIA driver is not loaded", <-written, "a healthy node is no change")
	m.Change(t, inv, func() { m.Gone = nil })
	assert.Equal(t, "Normal NVIDIADriverAvailable Discover: NVIDIA driver 580.95.05 responds with 2 GPUs", <-written)
	m.Change(t, inv, func() {
		m.Faults = []gpu.Fault{{Index: 2, UUID: "GPU-cccccccc-0000-4000-8000-000000000000", Err: gpu.ErrLost}}
	})
	assert.Equal(t, "Warning GPUUnhealthy Discover: GPU 2 (GPU-cccccccc-0000-4000-8000-000000000000) is not advertised: GPU is lost", <-written)
	m.Change(t, inv, func() {
		m.Faults = append(m.Faults, gpu.Fault{Index: 3, Err: gpu.ErrTimeout})
	})
	assert.Equal(t, "Warning GPUUnhealthy Discover: GPU 3 (UUID unknown) is not advertised: no answer within the deadline", <-written)
	m.Change(t, inv, func() {
		m.GPUs, m.Faults = m.GPUs[:1], append(m.Faults, gpu.Fault{Index: 1, UUID: m.GPUs[1].UUID, Err: gpu.ErrLost})
	})
	m.Change(t, inv, func() { m.Gone = gpu.ErrDriverNotLoaded })
	assert.Equal(t, "Warning NVIDIADriverUnavailable Discover: No GPU is advertised: NVIDIA driver is not loaded", <-written,
		"a lost GPU that is still published is a finding")
	m.Change(t, inv, func() { m.Gone, m.Faults = nil, m.Faults[2:] })
	assert.Equal(t, "Normal NVIDIADriverAvailable Discover: NVIDIA driver 580.95.05 responds with 1 GPUs", <-written)
	stop()
	assert.Empty(t, written, "nothing is reported twice")
}

// TestDriverEvents_LostButAdvertised_ReportedByItsFinding: the same is not reported twice.
func TestDriverEvents_LostButAdvertised_ReportedByItsFinding(t *testing.T) {
	t.Parallel()
	m := fakes.TwoGPUs()
	m.Faults = []gpu.Fault{{Index: 1, UUID: m.GPUs[1].UUID, Err: gpu.ErrLost}}
	m.GPUs[1].Lost = true
	written := make(fakes.Events, 16)
	stop := fakes.Run(t, DriverEvents{Inventory: m.Inventory(t), Events: written}.Run)
	stop()
	assert.Empty(t, written)
}

func TestDriverEvents_StartWithoutDriver_Reported(t *testing.T) {
	t.Parallel()
	m := fakes.TwoGPUs()
	m.Gone = gpu.ErrDriverNotLoaded
	written := make(fakes.Events, 16)
	stop := fakes.Run(t, DriverEvents{Inventory: m.Inventory(t), Events: written}.Run)
	assert.Equal(t, "Warning NVIDIADriverUnavailable Discover: No GPU is advertised: NVIDIA driver is not loaded", <-written)
	stop()
}
