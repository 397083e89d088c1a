package model

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// partitioned turns MIG mode on, and creates two MIG devices of the smallest profile.
func partitioned(t *testing.T, session *Session) (devices [2]Handle, instances [2]Handle) {
	t.Helper()
	ctx, gpu := context.Background(), handleOf(0)
	_, err := session.SetMIGMode(ctx, gpu, true, true)
	require.NoError(t, err)
	for i := range devices {
		instances[i], err = session.CreateGPUInstance(ctx, gpu, 19, nil, true)
		require.NoError(t, err)
		_, err = session.CreateComputeInstance(ctx, instances[i], 0, true)
		require.NoError(t, err)
		devices[i], err = session.MIGDeviceByIndex(gpu, i)
		require.NoError(t, err)
	}
	return devices, instances
}

// pair takes two samples of a device with this time between them.
func pair(t *testing.T, session *Session, h Handle, c *clock, apart time.Duration) (first, second uint64) {
	t.Helper()
	first, err := session.AllocateSample()
	require.NoError(t, err)
	second, err = session.AllocateSample()
	require.NoError(t, err)
	require.NoError(t, session.Sample(h, first))
	c.pass(apart)
	require.NoError(t, session.Sample(h, second))
	return first, second
}

func metrics(t *testing.T, session *Session, first, second uint64, ids ...uint32) []GPMValue {
	t.Helper()
	values, err := session.GPMMetrics(first, second, ids)
	require.NoError(t, err)
	return values
}

func TestGPMMetrics_MIGDevices_EachItsOwnWork(t *testing.T) {
	node, session, c := clocked(t, "h100-80")
	devices, _ := partitioned(t, session)
	working(t, session, devices[0], 101, 60)
	first, second := pair(t, session, devices[0], c, time.Second)
	assert.InDelta(t, 60, metrics(t, session, first, second, 2)[0].Value, 1e-6)
	other, another := pair(t, session, devices[1], c, time.Second)
	assert.Zero(t, metrics(t, session, other, another, 2)[0].Value)
	whole, later := pair(t, session, handleOf(0), c, time.Second)
	assert.InDelta(t, 60*16/132., metrics(t, session, whole, later, 2)[0].Value, 1e-6, "the value of the GPU is the average over its multiprocessors")
	require.NoError(t, node.SetLoad(node.GPUs()[0].MIGDevices[1].UUID, Script{Steps: []Step{{Values: map[Quantity]float64{QuantityTensor: 40}}}}))
	other, another = pair(t, session, devices[1], c, time.Second)
	assert.InDelta(t, 40, metrics(t, session, other, another, 5)[0].Value, 1e-6)
	_, err := session.GPMMetrics(first, another, []uint32{2})
	require.ErrorIs(t, err, InvalidArgument, "samples of different targets")
	_, err = session.GPMMetrics(another, other, []uint32{2})
	require.ErrorIs(t, err, InvalidArgument, "the wrong order")
}

func TestGPMMetrics_Numbers_ByDriverBoardAndTarget(t *testing.T) {
	tests := map[string]struct {
		driver DriverVersion
		mig    bool
		want   map[uint32]Return
	}{
		"525": {"525.60.13", false, map[uint32]Return{1: 0, 97: 0, 100: InvalidArgument, 248: InvalidArgument, 14: InvalidArgument, 37: NotSupported, 30: 0}},
		"580": {"580.95.05", false, map[uint32]Return{60: 0, 100: NotSupported, 166: NotSupported, 248: InvalidArgument}},
		"590": {"590.10", false, map[uint32]Return{248: 0, 261: 0, 297: NotSupported, 405: InvalidArgument, 477: InvalidArgument}},
		"MIG": {"580.95.05", true, map[uint32]Return{1: 0, 20: 0, 30: 0, 31: NotSupported, 50: NotSupported, 60: NotSupported}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := Uniform("node-a", "h100-80", 1)
			spec.Driver = test.driver
			_, session, c := clockedSpec(t, spec)
			target := handleOf(0)
			if test.mig {
				devices, _ := partitioned(t, session)
				target = devices[0]
			}
			first, second := pair(t, session, target, c, time.Second)
			for id, want := range test.want {
				assert.Equal(t, want, metrics(t, session, first, second, id)[0].Return, "metric %d", id)
			}
		})
	}
}

func TestGPMMetrics_PairTooClose_NotANumber(t *testing.T) {
	_, session, c := clocked(t, "h100-80")
	first, second := pair(t, session, handleOf(0), c, 99*time.Millisecond)
	value := metrics(t, session, first, second, 2)[0]
	assert.Equal(t, Success, value.Return)
	assert.True(t, math.IsNaN(value.Value))
	first, second = pair(t, session, handleOf(0), c, 100*time.Millisecond)
	assert.Zero(t, metrics(t, session, first, second, 2)[0].Value)
}

func TestSample_BeforeHopper_NotSupported(t *testing.T) {
	for _, board := range []string{"t4", "a100-80", "l40s"} {
		_, session, _ := clocked(t, board)
		supported, err := session.SupportsGPM(handleOf(0))
		require.NoError(t, err)
		assert.False(t, supported)
		id, err := session.AllocateSample()
		require.NoError(t, err)
		require.ErrorIs(t, session.Sample(handleOf(0), id), NotSupported)
	}
}

// A GPU instance cannot be destroyed while a sample of it exists or, with the other hold, until the session ends.
func TestDestroyGPUInstance_Sampled_InUseUntilReleased(t *testing.T) {
	for _, hold := range []SampleHold{HoldUntilFree, HoldUntilShutdown} {
		spec := Uniform("node-a", "h100-80", 1)
		spec.SampleHold = hold
		node, session, _ := clockedSpec(t, spec)
		devices, instances := partitioned(t, session)
		watcher, err := node.Open("", []int{0})
		require.NoError(t, err)
		sample, err := watcher.AllocateSample()
		require.NoError(t, err)
		require.NoError(t, watcher.Sample(devices[0], sample))
		ci, err := session.ComputeInstanceByID(instances[0], 0, true)
		require.NoError(t, err)
		require.NoError(t, session.DestroyComputeInstance(t.Context(), ci, true))
		require.ErrorIs(t, session.DestroyGPUInstance(t.Context(), instances[0], true), InUse)
		require.NoError(t, watcher.FreeSample(sample))
		if hold == HoldUntilShutdown {
			require.ErrorIs(t, session.DestroyGPUInstance(t.Context(), instances[0], true), InUse)
			watcher.Close()
		}
		require.NoError(t, session.DestroyGPUInstance(t.Context(), instances[0], true), hold)
	}
	_, err := New(Spec{Name: "n", SampleHold: "always"})
	require.ErrorContains(t, err, `supported values: "free", "shutdown"`)
}

// A sample that is taken of another instance releases the first one.
func TestSample_AnotherInstance_FirstReleased(t *testing.T) {
	node, session, _ := clocked(t, "h100-80")
	_, instances := partitioned(t, session)
	sample, err := session.AllocateSample()
	require.NoError(t, err)
	for _, i := range []int{0, 0, 1} {
		described, err := session.GPUInstance(instances[i])
		require.NoError(t, err)
		require.NoError(t, session.SampleInstance(handleOf(0), described.ID, sample))
	}
	shown := node.GPUs()[0].MIGDevices
	assert.Equal(t, []int{0, 1}, []int{shown[0].Samples, shown[1].Samples})
	require.ErrorIs(t, session.SampleInstance(handleOf(0), 77, sample), NotFound)
}
