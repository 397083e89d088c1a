package sampling

import (
	"math"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// processGPU is a GPU with two processes, 10 and 11. A test sets their samples.
type processGPU struct {
	*bareGPU
	*Driver
	t *testing.T
}

func newProcessGPU(t *testing.T) processGPU {
	t.Helper()
	on := func(pid uint32) nvml.ProcessInfo {
		return nvml.ProcessInfo{Pid: pid, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}
	}
	g := &bareGPU{compute: []nvml.ProcessInfo{on(10), on(11)}}
	return processGPU{g, bareDriver(t, &bare{}, g), t}
}

// uses adds a sample of a process with a time relative to now.
func (s processGPU) uses(pid, percent uint32, after time.Duration) {
	s.utilization = append(s.utilization, nvml.ProcessUtilizationSample{
		Pid: pid, TimeStamp: uint64(time.Now().Add(after).UnixMicro()), SmUtil: percent,
	})
}

// round returns the utilization of both processes, -1 without a value.
func (s processGPU) round() (list metrics.ProcessList, of [2]float64) {
	s.t.Helper()
	list, err := s.Processes(s.t.Context(), "GPU-0", time.Minute)
	require.NoError(s.t, err)
	require.Len(s.t, list.Processes, 2)
	for i := range of {
		if of[i] = list.Processes[i].SM; math.IsNaN(of[i]) {
			of[i] = -1
		}
	}
	return list, of
}

// TestProcesses_SampleOfTheFuture_DroppedAndCounted: samples of all processes still count, in this round and in later ones.
func TestProcesses_SampleOfTheFuture_DroppedAndCounted(t *testing.T) {
	t.Parallel()
	s := newProcessGPU(t)
	s.uses(11, 30, -time.Hour)
	s.round()
	s.uses(10, 50, time.Hour)
	list, of := s.round()
	assert.Equal(t, [2]float64{-1, -1}, of)
	assert.False(t, list.Sampled, "a driver whose samples are all of the future does not say what is idle")
	for minutes := range 3 {
		s.uses(11, 20, time.Duration(minutes-10)*time.Minute)
		list, of = s.round()
		assert.Equal(t, [2]float64{-1, 0.2}, of)
		assert.Equal(t, 1, list.Dropped)
		assert.True(t, list.Sampled)
	}
	s.uses(10, 40, time.Second)
	list, of = s.round()
	assert.Equal(t, [2]float64{0.4, -1}, of, "a clock may be that much behind")
	assert.Equal(t, 1, list.Dropped)
}

// TestProcesses_ClockSetBack_BeginsAgain: samples from before the step lie in the future, so no later sample would be newer.
func TestProcesses_ClockSetBack_BeginsAgain(t *testing.T) {
	t.Parallel()
	s := newProcessGPU(t)
	s.round()
	s.devices["GPU-0"].processes.lastSeen = uint64(time.Now().Add(time.Hour).UnixMicro())
	s.uses(10, 50, time.Hour+time.Minute)
	s.uses(11, 30, -10*time.Minute)
	list, of := s.round()
	assert.Equal(t, [2]float64{-1, -1}, of, "it is not known when the window began")
	assert.False(t, list.Sampled)
	s.uses(11, 20, -5*time.Minute)
	list, of = s.round()
	assert.Equal(t, [2]float64{-1, 0.2}, of)
	assert.True(t, list.Sampled)
}
