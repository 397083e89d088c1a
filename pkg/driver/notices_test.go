package driver

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// nodeEvents hands on what the operator is told.
type nodeEvents chan string

func (e nodeEvents) Warn(reason, action, note string) {
	e <- "Warning " + reason + " " + action + ": " + note
}
func (e nodeEvents) Normal(reason, action, note string) {
	e <- "Normal " + reason + " " + action + ": " + note
}

func TestTheOperatorIsToldOfChanges(t *testing.T) {
	t.Parallel()
	m := twoGPUs()
	inv := m.look(t)
	told := make(nodeEvents, 16)
	stop := inBackground(t, Notices{Inventory: inv, Events: told}.Run)

	m.change(t, inv, func() { m.gone = gpu.ErrDriverNotLoaded })
	assert.Equal(t, "Warning NVIDIADriverUnavailable Discover: No GPU is offered: NVIDIA driver is not loaded", <-told, "a node that is well is no news")
	m.change(t, inv, func() { m.gone = nil })
	assert.Equal(t, "Normal NVIDIADriverAvailable Discover: NVIDIA driver 580.95.05 serves 2 GPUs", <-told)
	m.change(t, inv, func() {
		m.gpus, m.faults = m.gpus[:1], []gpu.Fault{{Index: 1, UUID: m.gpus[1].UUID, Err: gpu.ErrLost}}
	})
	assert.Equal(t, "Warning GPUUnhealthy Discover: GPU 1 (GPU-bbbbbbbb-0000-4000-8000-000000000000) is not offered: GPU is lost", <-told)
	m.change(t, inv, func() {
		m.gpus, m.faults = nil, append(m.faults, gpu.Fault{Index: 0, UUID: m.gpus[0].UUID, Err: gpu.ErrTimeout})
	})
	assert.Equal(t, "Warning GPUUnhealthy Discover: GPU 0 (GPU-aaaaaaaa-0000-4000-8000-000000000000) is not offered: no answer within the deadline", <-told)
	stop()
	assert.Empty(t, told, "nothing is told twice")
}

func TestAStartWithoutDriverIsTold(t *testing.T) {
	t.Parallel()
	m := twoGPUs()
	m.gone = gpu.ErrDriverNotLoaded
	told := make(nodeEvents, 16)
	stop := inBackground(t, Notices{Inventory: m.look(t), Events: told}.Run)
	assert.Equal(t, "Warning NVIDIADriverUnavailable Discover: No GPU is offered: NVIDIA driver is not loaded", <-told)
	stop()
}
