package sampler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// TestSampler_LostGPUReset_FoundByNewSession: the handle of a lost GPU stays lost.
func TestSampler_LostGPUReset_FoundByNewSession(t *testing.T) {
	t.Parallel()
	for _, sessions := range []int{2, 4} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(2)
			s := started(t, Options{Library: f})
			pass(15 * time.Second)
			f.change(func() { f.gpus["GPU-0"].lostUntil = sessions })
			pass(25 * time.Second)
			assert.Equal(t, 1, f.opens(), "not yet three intervals")
			pass(25 * time.Second)
			assert.Equal(t, 2, f.opens())
			pass(5 * time.Minute)
			assert.True(t, gpuOf(t, s, "GPU-0").Up)
			assert.True(t, gpuOf(t, s, "GPU-1").Up)
			assert.Equal(t, sessions, f.opens())
			require.NoError(t, s.Status().Err)
			assert.Zero(t, s.Status().Reopened, "for no MIG device")
		})
	}
}

func TestSampler_GPUStaysLost_SessionsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		f.gpus["GPU-0"].lostUntil = 1 << 20
		s := started(t, Options{Library: f})
		pass(time.Hour)
		assert.InDelta(t, 8, f.opens(), 1, "the waits double up to 16 minutes")
		assert.True(t, gpuOf(t, s, "GPU-1").Up)
		assert.True(t, has(gpuOf(t, s, "GPU-1"), metrics.FieldSMActive))
	})
}
