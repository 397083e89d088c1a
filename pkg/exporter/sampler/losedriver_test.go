package sampler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestSampler_DriverReloaded_XIDsKept: XIDs are counted since the exporter started, and a driver is often reloaded after one. If the count
// vanished with the driver, an alert that missed the increase would never see it.
func TestSampler_DriverReloaded_XIDsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		s := started(t, Options{Library: f})
		synctest.Wait()
		f.change(func() { f.xids = []fakeXID{{"GPU-0", metrics.XID{Code: 79, GPUInstance: -1}}} })
		pass(time.Second)
		before := gpuOf(t, s, "GPU-0").XIDs
		require.Len(t, before, 1)
		f.change(func() { f.gpus["GPU-0"].err, f.openErr = gpu.ErrDriverNotLoaded, gpu.ErrDriverNotLoaded })
		pass(15 * time.Second)
		require.ErrorIs(t, s.Status().Err, gpu.ErrDriverNotLoaded)
		assert.Equal(t, before, gpuOf(t, s, "GPU-0").XIDs, "while no driver is loaded")
		f.change(func() { f.gpus["GPU-0"].err, f.openErr = nil, nil })
		pass(15 * time.Second)
		require.True(t, gpuOf(t, s, "GPU-0").Up)
		assert.Equal(t, before, gpuOf(t, s, "GPU-0").XIDs, "and by the next one")
	})
}
