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

// sending is a driver with a GPU without GPM that sends 1000 bytes per second.
func sending() *fakeLibrary {
	f := newFake(1)
	g := f.gpus["GPU-0"]
	g.identity.GPM, g.sends, g.began = false, 1000, time.Now()
	return f
}

func TestSampler_GPUWithoutGPM_RatesOfCounters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := sending(), &wants{}
		s := started(t, Options{Library: f, Wanted: w.of})
		synctest.Wait()
		assert.False(t, has(gpuOf(t, s, "GPU-0"), metrics.FieldNVLinkTransmitRate), "the first round has none before it")
		for range 3 {
			pass(10 * time.Second)
			rate, ok := gpuOf(t, s, "GPU-0").Values.Get(metrics.FieldNVLinkTransmitRate)
			require.True(t, ok)
			assert.InDelta(t, 1000, rate, 1e-6)
		}
		w.set(Want{Claim: "a", Interval: time.Second})
		pass(time.Until(gpuOf(t, s, "GPU-0").At.Add(10 * time.Second)))
		assert.False(t, has(gpuOf(t, s, "GPU-0"), metrics.FieldNVLinkTransmitRate), "the round before is more than three intervals ago")
		pass(time.Second)
		assert.True(t, has(gpuOf(t, s, "GPU-0"), metrics.FieldNVLinkTransmitRate))
	})
}

func TestSampler_DriverUnloaded_NoRateSinceBefore(t *testing.T) {
	t.Parallel()
	for _, lost := range []error{gpu.ErrDriverNotLoaded, gpu.ErrTimeout} {
		synctest.Test(t, func(t *testing.T) {
			f := sending()
			s := started(t, Options{Library: f})
			pass(11 * time.Second)
			require.True(t, has(gpuOf(t, s, "GPU-0"), metrics.FieldNVLinkTransmitRate))
			f.change(func() { f.gpus["GPU-0"].err = lost })
			pass(10 * time.Second)
			f.change(func() { f.gpus["GPU-0"].err = nil })
			before := gpuOf(t, s, "GPU-0").At
			for range 20 {
				if g := gpuOf(t, s, "GPU-0"); g.Up && g.At != before {
					break
				}
				pass(time.Second)
			}
			back := gpuOf(t, s, "GPU-0")
			require.True(t, back.Up)
			require.NotEqual(t, before, back.At)
			assert.False(t, has(back, metrics.FieldNVLinkTransmitRate))
		})
	}
}

// TestSampler_ClockEvents_CountedInWindow: each round is a sample, including rounds that a claim's interval adds.
func TestSampler_ClockEvents_CountedInWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := started(t, Options{Library: newFake(1), Sets: []string{gpu.MetricsUtilization}})
		pass(time.Minute)
		assert.Zero(t, gpuOf(t, s, "GPU-0").ClockEvents, "not sampled")
		s.Measure(metrics.FieldClockEventReasons)
		pass(metrics.Window / 2)
		half := gpuOf(t, s, "GPU-0").ClockEvents
		assert.EqualValues(t, metrics.Window/2/DefaultInterval, half[2])
		pass(3 * metrics.Window)
		full := gpuOf(t, s, "GPU-0").ClockEvents
		assert.EqualValues(t, metrics.Window/DefaultInterval, full[2], "older ones are forgotten")
		assert.Zero(t, full[0])
	})
}

// TestSampler_WholeGPUOfAnotherClaim_NothingOfTheFormerOne: neither a mean nor a rate covers two tenants.
func TestSampler_WholeGPUOfAnotherClaim_NothingOfTheFormerOne(t *testing.T) {
	t.Parallel()
	for _, gpm := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f, w := sending(), &wants{}
			f.gpus["GPU-0"].identity.GPM = gpm
			field := metrics.FieldNVLinkTransmitRate
			if gpm {
				field = metrics.FieldSMActive
			}
			w.set(Want{Claim: "a"})
			s := started(t, Options{Library: f, Wanted: w.of})
			pass(25 * time.Second)
			next := func() bool {
				began := time.Now()
				<-s.Changed()
				assert.False(t, gpuOf(t, s, "GPU-0").Began.Before(began))
				return has(gpuOf(t, s, "GPU-0"), field)
			}
			assert.True(t, next())
			w.set(Want{Claim: "a"}, Want{Claim: "b"})
			assert.True(t, next(), "claims that share the GPU come and go")
			w.set(Want{Claim: "b"})
			assert.True(t, next())
			w.set()
			assert.True(t, next(), "no claim has it")
			w.set(Want{Claim: "c"})
			assert.False(t, next())
			assert.True(t, next())
			w.set(Want{Claim: "d"})
			assert.False(t, next())
			assert.True(t, next())
		})
	}
}

// TestSampler_RoundFails_NewBaselines: a mean since the round before it would cover two intervals.
func TestSampler_RoundFails_NewBaselines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, _ := sliced(t)
		baselines := map[int]int{WholeGPU: f.baselines("GPU-0", WholeGPU), 7: f.baselines("GPU-0", 7)}
		failed := s.Status().Errors["GPU-0"]
		f.change(func() { f.gpus["GPU-0"].err = gpu.ErrTimeout })
		for s.Status().Errors["GPU-0"] == failed {
			pass(time.Second)
		}
		f.change(func() { f.gpus["GPU-0"].err = nil })
		pass(10 * time.Second)
		for target, before := range baselines {
			assert.Equal(t, before+1, f.baselines("GPU-0", target))
		}
	})
}
