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

const mig = gpu.UUID("MIG-a")

// sliced is a driver with one sampled MIG device, of claim a.
func sliced(t *testing.T) (*Sampler, *fakeLibrary, *wants) {
	t.Helper()
	f, w := newFake(2), &wants{}
	f.gpus["GPU-0"].devices = []metrics.MIGDevice{{UUID: mig, Profile: "1g.10gb", GPUInstance: 7}}
	w.set(Want{MIG: mig, Claim: "a"})
	s := started(t, Options{Library: f, Wanted: w.of})
	pass(25 * time.Second)
	require.True(t, f.holds("GPU-0", 7))
	_, sampled := gpuOf(t, s, "GPU-0").MIGDevices[0].Values.Get(metrics.FieldSMActive)
	require.True(t, sampled)
	return s, f, w
}

// TestSample_MIGDeviceWithoutClaim_NotHeld: an administrator can destroy a GPU instance without a claim.
func TestSample_MIGDeviceWithoutClaim_NotHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, w := sliced(t)
		w.set()
		pass(11 * time.Second)
		assert.False(t, f.holds("GPU-0", 7))
		_, sampled := gpuOf(t, s, "GPU-0").MIGDevices[0].Values.Get(metrics.FieldSMActive)
		assert.False(t, sampled)
		w.set(Want{MIG: mig, Claim: "b"})
		pass(11 * time.Second)
		assert.True(t, f.holds("GPU-0", 7))
	})
}

func TestRelease_MIGDevice_SamplesFreedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, w := sliced(t)
		s.Release(mig, "a", true)
		synctest.Wait()
		assert.False(t, f.holds("GPU-0", 7))
		assert.True(t, f.holds("GPU-0", WholeGPU), "others stay")
		f.change(func() { f.gpus["GPU-0"].devices = nil })
		w.set()
		pass(30 * time.Second)
		assert.Empty(t, gpuOf(t, s, "GPU-0").MIGDevices)
		assert.Zero(t, s.Status().Reopened)
		assert.Equal(t, 1, f.opens())
		assert.Zero(t, s.pending(), "nothing is left of it")
	})
}

// TestRelease_StaticMIGDevice_SamplesFreedAtOnce: an administrator can destroy the device as soon as its claim is unprepared, and the
// session is not reopened for a device that is not destroyed.
func TestRelease_StaticMIGDevice_SamplesFreedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, w := sliced(t)
		baselines := f.baselines("GPU-0", 7)
		w.set()
		s.Release(mig, "a", false)
		synctest.Wait()
		assert.False(t, f.holds("GPU-0", 7))
		assert.Zero(t, s.pending())
		pass(30 * time.Second)
		assert.Zero(t, s.Status().Reopened)
		w.set(Want{MIG: mig, Claim: "b"})
		pass(10 * time.Second)
		assert.True(t, f.holds("GPU-0", 7))
		assert.Equal(t, baselines+1, f.baselines("GPU-0", 7))
	})
}

// TestRelease_StaticMIGDeviceOfAnotherClaim_StillSampled: claims may share it.
func TestRelease_StaticMIGDeviceOfAnotherClaim_StillSampled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, w := sliced(t)
		w.set(Want{MIG: mig, Claim: "a"}, Want{MIG: mig, Claim: "b"})
		pass(10 * time.Second)
		baselines := f.baselines("GPU-0", 7)
		w.set(Want{MIG: mig, Claim: "b"})
		s.Release(mig, "a", false)
		synctest.Wait()
		assert.True(t, f.holds("GPU-0", 7))
		assert.Zero(t, s.pending())
		pass(10 * time.Second)
		assert.Equal(t, baselines, f.baselines("GPU-0", 7))
	})
}

func TestRelease_StillThere_ReopenedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, _ := sliced(t)
		baselines := f.baselines("GPU-1", WholeGPU)
		s.Release(mig, "a", true)
		pass(releaseTime - time.Millisecond)
		assert.Equal(t, 1, f.opens())
		pass(time.Second)
		assert.Equal(t, 2, f.opens())
		assert.Equal(t, uint64(1), s.Status().Reopened)
		assert.True(t, gpuOf(t, s, "GPU-1").Up, "values stay meanwhile")
		pass(time.Minute)
		assert.Equal(t, 2, f.opened, "once is enough")
		assert.False(t, f.holds("GPU-0", 7), "it is not sampled while it is to be destroyed")
		assert.Equal(t, baselines+1, f.baselines("GPU-1", WholeGPU))
		f.change(func() { f.gpus["GPU-0"].devices = nil })
		pass(11 * time.Second)
		assert.Zero(t, s.pending())
	})
}

// TestRelease_RecreatedWithSameUUID_NewBaseline: the new claim's values are not values of the old one.
func TestRelease_RecreatedWithSameUUID_NewBaseline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, w := sliced(t)
		baselines := f.baselines("GPU-0", 7)
		s.Release(mig, "a", true)
		synctest.Wait()
		w.set(Want{MIG: mig, Claim: "b"}) // destroyed and created again before any round
		pass(10 * time.Second)
		assert.Equal(t, baselines+1, f.baselines("GPU-0", 7))
		_, sampled := gpuOf(t, s, "GPU-0").MIGDevices[0].Values.Get(metrics.FieldSMActive)
		assert.False(t, sampled)
		assert.Zero(t, s.Status().Reopened)
		pass(10 * time.Second)
		_, sampled = gpuOf(t, s, "GPU-0").MIGDevices[0].Values.Get(metrics.FieldSMActive)
		assert.True(t, sampled)
	})
}

func TestSample_OtherClaimWithSameUUID_NewBaseline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, w := sliced(t)
		baselines := f.baselines("GPU-0", 7)
		w.set(Want{MIG: mig, Claim: "b"})
		pass(10 * time.Second)
		assert.Equal(t, baselines+1, f.baselines("GPU-0", 7))
		w.set(Want{MIG: mig, Claim: "b"}, Want{MIG: mig, Claim: "c"})
		pass(20 * time.Second)
		assert.Equal(t, baselines+1, f.baselines("GPU-0", 7), "a further claim of the same device ends nothing")
		assert.Zero(t, s.Status().Reopened)
	})
}

func TestRelease_GPUHangs_NoBusyLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, _ := sliced(t)
		f.change(func() { f.gpus["GPU-0"].hang = true })
		s.Release(mig, "a", true)
		pass(time.Minute)
		assert.Less(t, s.Status().Errors["GPU-0"], uint64(40))
		assert.Zero(t, s.Status().Reopened)
	})
}

func TestSample_InstanceGone_SamplesFreed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, f, w := sliced(t)
		f.change(func() { f.gpus["GPU-0"].devices = nil })
		w.set()
		pass(10 * time.Second)
		assert.False(t, f.holds("GPU-0", 7))
	})
}

// TestRelease_SameClaimPreparedAgain_Sampled: a claim may be unprepared and prepared again, with the same placement.
func TestRelease_SameClaimPreparedAgain_Sampled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, w := sliced(t)
		baselines := f.baselines("GPU-0", 7)
		w.set() // an unprepared claim requests nothing
		s.Release(mig, "a", true)
		synctest.Wait()
		w.set(Want{MIG: mig, Claim: "a"})
		pass(20 * time.Second)
		assert.Equal(t, baselines+1, f.baselines("GPU-0", 7))
		assert.True(t, f.holds("GPU-0", 7))
	})
}

// TestRelease_ClaimBetweenRounds_NextClaimSampled: no round found the device of claim a, and claim b uses another one with the same
// placement and UUID.
func TestRelease_ClaimBetweenRounds_NextClaimSampled(t *testing.T) {
	t.Parallel()
	for _, gap := range []time.Duration{3 * time.Second, 15 * time.Second, 50 * time.Second, 70 * time.Second} {
		// The record of claim b may be complete some time after the creation of its device.
		for _, prepares := range []time.Duration{0, 12 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				f, w := newFake(1), &wants{}
				s := started(t, Options{Library: f, Wanted: w.of})
				pass(25 * time.Second)
				<-s.Changed()
				s.Release(mig, "a", true) // just after a round
				pass(gap)
				f.change(func() { f.gpus["GPU-0"].devices = []metrics.MIGDevice{{UUID: mig, Profile: "1g.10gb", GPUInstance: 7}} })
				if gap > DefaultInterval { // a round has seen that the device was gone
					pass(prepares)
				}
				w.set(Want{MIG: mig, Claim: "b"})
				pass(20 * time.Second)
				device := gpuOf(t, s, "GPU-0").MIGDevices[0]
				_, sampled := device.Values.Get(metrics.FieldSMActive)
				assert.True(t, sampled, "%s later", gap)
				_, used := device.Values.Get(metrics.FieldMemoryUsed)
				assert.True(t, used, "%s later", gap)
				assert.Zero(t, s.Status().Reopened, "%s later", gap)
				assert.Zero(t, s.pending())
			})
		}
	}
}

// TestRelease_NoRoundFindsDevice_Dropped: much later, a device with its UUID may belong to the same claim again.
func TestRelease_NoRoundFindsDevice_Dropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := started(t, Options{Library: newFake(1)})
		pass(25 * time.Second)
		s.Release(mig, "a", true)
		pass(dropTime - time.Second)
		assert.Equal(t, 1, s.pending())
		pass(12 * time.Second)
		assert.Zero(t, s.pending())
	})
}

// TestRelease_GPUHangsForLong_SamplesFreedThen: the sampler still frees the samples of a device after its GPU hung.
func TestRelease_GPUHangsForLong_SamplesFreedThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f, w := sliced(t)
		f.change(func() { f.gpus["GPU-0"].hang = true })
		w.set()
		s.Release(mig, "a", true)
		pass(2 * dropTime)
		require.True(t, f.holds("GPU-0", 7))
		f.change(func() { f.gpus["GPU-0"].hang = false })
		pass(callLimit + releaseTime)
		assert.False(t, f.holds("GPU-0", 7))
	})
}
