package nvml

import (
	"context"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// TestGPUs_ContextEnds_GPUsStayKnown: claims that are being prepared can use a GPU although another caller gave up waiting for its answer.
func TestGPUs_ContextEnds_GPUsStayKnown(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(2)
	s, err := open(t.Context(), d, library.NewGate(), Options{Deadline: time.Hour})
	require.NoError(t, err)
	d.gpus[0].looked(t, s)
	handles := d.count("nvmlDeviceGetHandleByIndex_v2")
	asked := d.count("nvmlDeviceGetPerformanceState")
	release := d.gpus[0].block("nvmlDeviceGetPerformanceState")
	t.Cleanup(release)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := s.GPUs(ctx)
		done <- err
	}()
	require.Eventually(t, func() bool { return d.count("nvmlDeviceGetPerformanceState") >= asked+2 }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	release()
	for index := range d.gpus {
		require.NoError(t, s.gate.Idle(t.Context(), library.GPUAt(index)))
	}

	mode, err := s.MIGMode(t.Context(), firstGPU)
	require.NoError(t, err)
	assert.Equal(t, gpu.MIGMode{}, mode)
	d.gpus[0].looked(t, s)
	assert.Equal(t, handles, d.count("nvmlDeviceGetHandleByIndex_v2"), "nothing was read again")
}

// TestOpen_CallerGivesUp_NothingStaysInitialised: without the caller, nothing would close the session.
func TestOpen_CallerGivesUp_NothingStaysInitialised(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(1)
	begun, release := d.blockInit()
	g := library.NewGate()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := open(ctx, d, g, Options{Deadline: time.Hour})
		done <- err
	}()
	<-begun
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	_, err := open(t.Context(), d, g, Options{Deadline: time.Hour})
	require.ErrorIs(t, err, gpu.ErrTimeout, "one call at a time that nothing waits for")
	release()
	require.NoError(t, g.Idle(t.Context(), library.WholeDriver))
	assert.Zero(t, d.initialised())
	s, err := open(t.Context(), d, g, Options{})
	require.NoError(t, err)
	assert.Equal(t, 1, d.initialised())
	require.NoError(t, s.Close())
	assert.Zero(t, d.initialised())
}

// TestGPUs_AnotherProcessChangedMIGMode_MinorReadAgain: changes by the session itself already read it again.
func TestGPUs_AnotherProcessChangedMIGMode_MinorReadAgain(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	g.moves = 5
	minor := func() int {
		gpus, faults, err := s.GPUs(t.Context())
		require.NoError(t, err)
		require.Empty(t, faults)
		return gpus[0].Minor
	}
	require.Equal(t, 10, minor())
	_, _ = g.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	assert.Equal(t, 15, minor())
	assert.Equal(t, 15, minor())
	assert.Equal(t, 1, g.handles, "once per change")
	_, _ = g.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	assert.Equal(t, 20, minor())
	require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
	assert.Equal(t, 3, g.handles)
	assert.Equal(t, 25, minor())
	assert.Equal(t, 3, g.handles, "the change has read it")
}
