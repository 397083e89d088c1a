package sampler

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// without returns all other fields.
func without(fields metrics.FieldSet) (others metrics.FieldSet) {
	for f := range metrics.FieldCount {
		if !fields.Has(f) {
			others.Add(f)
		}
	}
	return others
}

// TestSampler_GPUOffTheBus_SameSeriesOverSessions: while a session does not identify the GPU that does not respond, and while there is no
// driver, the GPU keeps its identity, XIDs and ECC errors, and no other series appears for it.
func TestSampler_GPUOffTheBus_SameSeriesOverSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		second := f.gpus["GPU-1"]
		second.identity = metrics.Identity{
			UUID: "GPU-1", Index: 1, Device: "nvidia7", PCIBusID: "0000:3c:00.0", Name: "NVIDIA H100", Serial: "1", DriverVersion: "580.95.05", GPM: true,
		}
		second.ecc = 3
		s := started(t, Options{Library: f})
		pass(15 * time.Second)
		known := gpuOf(t, s, "GPU-1").Identity
		f.change(func() {
			second.lostUntil, second.unread = 1<<20, true
			f.xids = []fakeXID{{"GPU-1", metrics.XID{Code: 79, GPUInstance: -1}}}
		})
		dead := func() {
			t.Helper()
			require.Len(t, s.Snapshot().GPUs, 2)
			g := gpuOf(t, s, "GPU-1")
			assert.False(t, g.Up)
			assert.Equal(t, known, g.Identity)
			require.Len(t, g.XIDs, 1)
			assert.EqualValues(t, 79, g.XIDs[0].Code)
			errors, there := g.Values.Get(metrics.FieldECCUncorrectedVolatile)
			assert.True(t, there)
			assert.InDelta(t, 3, errors, 0)
			assert.False(t, has(g, metrics.FieldPowerUsage))
			assert.Zero(t, s.Status().Unidentified)
		}
		pass(time.Minute)
		require.Equal(t, 2, f.opens(), "another session")
		dead()
		assert.True(t, gpuOf(t, s, "GPU-0").Up)

		f.change(func() { f.openErr = gpu.ErrDriverNotLoaded; f.gpus["GPU-0"].err = gpu.ErrDriverNotLoaded })
		pass(time.Minute)
		require.Error(t, s.Status().Err)
		dead()
		f.change(func() { f.openErr = nil; f.gpus["GPU-0"].err = nil })
		pass(time.Minute)
		dead()

		f.change(func() {
			second.lostUntil, second.err = 0, nil
			second.identity.Name, second.identity.Device, second.identity.Index = "", "", 0 // another index, and an incomplete description
			f.gpus["GPU-0"].identity.Index = 1
		})
		pass(time.Minute)
		back := gpuOf(t, s, "GPU-1")
		assert.True(t, back.Up)
		known.Index = 0
		assert.Equal(t, known, back.Identity, "what was known of it stays known")
		require.Len(t, s.Snapshot().GPUs, 2)
	})
}

// TestSampler_SeveralUnread_NoneTakenForAnother: a fault that could be one of several GPUs appears in no series.
func TestSampler_SeveralUnread_NoneTakenForAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		s := started(t, Options{Library: f})
		pass(15 * time.Second)
		f.change(func() { // one is not listed any more
			delete(f.gpus, "GPU-0")
			f.gpus["GPU-1"].lostUntil, f.gpus["GPU-1"].unread = 1<<20, true
			f.openErr = errors.New("busy")
			f.gpus["GPU-2"].err = gpu.ErrDriverNotLoaded
		})
		pass(time.Minute)
		f.change(func() { f.openErr = nil; f.gpus["GPU-2"].err = nil })
		pass(time.Minute)
		assert.Equal(t, 1, s.Status().Unidentified)
		require.Len(t, s.Snapshot().GPUs, 3)
		assert.False(t, gpuOf(t, s, "GPU-0").Up)
		assert.False(t, gpuOf(t, s, "GPU-1").Up)
		assert.True(t, gpuOf(t, s, "GPU-2").Up)
	})
}
