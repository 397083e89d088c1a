package nvml

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// watching is a session whose events are received.
type watching struct {
	*Session

	driver *fakeDriver
	stop   func()
	done   chan error

	mu     sync.Mutex
	events []gpu.HealthEvent
}

// watch opens a session, inspects its GPUs, and receives their events until the test ends.
func watch(t *testing.T, d *fakeDriver) *watching {
	t.Helper()
	s, err := open(t.Context(), d, library.NewGate(), Options{Deadline: 5 * time.Second})
	require.NoError(t, err)
	_, _, err = s.GPUs(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	w := &watching{Session: s, driver: d, stop: stop, done: make(chan error, 1)}
	go func() {
		w.done <- s.WatchHealth(ctx, func(e gpu.HealthEvent) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, e)
		})
	}()
	synctest.Wait()
	return w
}

// end stops the watch and checks that no event set is left.
func (w *watching) end(t *testing.T) {
	t.Helper()
	w.stop()
	require.NoError(t, <-w.done)
	assert.Empty(t, w.driver.open())
	require.NoError(t, w.Close())
}

// received returns the events since the last call.
func (w *watching) received() []gpu.HealthEvent {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

// post delivers an event to the only event set.
func (d *fakeDriver) post(t *testing.T, e nvml.EventData) {
	t.Helper()
	sets := d.open()
	require.Len(t, sets, 1)
	sets[0].events <- e
}

// inspected inspects the GPUs.
func (w *watching) inspected(t *testing.T) {
	t.Helper()
	_, _, err := w.GPUs(t.Context())
	require.NoError(t, err)
}

// reports whether events of a GPU are received, as its reading says.
func (w *watching) reports(t *testing.T, id gpu.UUID) bool {
	t.Helper()
	return w.Health(t.Context(), &gpu.GPU{UUID: id}).Events
}

const secondGPU = gpu.UUID("GPU-00000001-0000")

func TestWatchHealth_Events_OfTheirGPU(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(2)
		w := watch(t, d)
		d.post(t, nvml.EventData{Device: d.gpus[1], EventType: nvml.EventTypeXidCriticalError, EventData: 79})
		d.post(t, nvml.EventData{Device: d.gpus[0], EventType: nvml.EventTypeGpuRecoveryAction, EventData: 1})
		d.post(t, nvml.EventData{Device: d.gpus[0], EventType: nvml.EventTypeDoubleBitEccError})
		d.post(t, nvml.EventData{Device: &fakeGPU{}, EventType: nvml.EventTypeGpuUnavailableError})
		time.Sleep(time.Minute)
		assert.Equal(t, []gpu.HealthEvent{{GPU: secondGPU, XID: 79}, {GPU: firstGPU}, {GPU: firstGPU}, {}}, w.received())
		assert.Equal(t, 1, d.count("nvmlEventSetCreate"))
		assert.InDelta(t, 2*60+4, d.count("nvmlEventSetWait_v2"), 2, "waits of 500 ms")
		assert.Equal(t, 2, d.count("nvmlDeviceRegisterEvents"))
		w.end(t)
	})
}

// TestWatchHealth_UnsupportedTypes_RegisteredWithoutThem: with one unsupported type NVML registers none.
func TestWatchHealth_UnsupportedTypes_RegisteredWithoutThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(3)
		d.gpus[0].eventTypes = nvml.EventTypeXidCriticalError | nvml.EventTypeClock
		d.gpus[1].eventTypes = nvml.EventTypeClock
		d.gpus[2].answer(nvml.ERROR_NOT_SUPPORTED, "nvmlDeviceGetSupportedEventTypes")
		w := watch(t, d)
		time.Sleep(time.Minute)
		assert.True(t, w.reports(t, firstGPU))
		assert.False(t, w.reports(t, secondGPU))
		assert.False(t, w.reports(t, "GPU-00000002-0000"))
		assert.Equal(t, 1, d.count("nvmlDeviceRegisterEvents"))
		assert.Equal(t, 3, d.count("nvmlDeviceGetSupportedEventTypes"), "asked once")
		w.end(t)
	})
}

// TestWatchHealth_NoGPUToWatch_NoWait: the wait of a set without a GPU may return at once.
func TestWatchHealth_NoGPUToWatch_NoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(1)
		d.gpus[0].eventTypes = 0
		w := watch(t, d)
		time.Sleep(time.Hour)
		assert.Zero(t, d.count("nvmlEventSetWait_v2"))
		w.end(t)
	})
}

// TestWatchHealth_WaitFailsForEver_BacksOff: the calls of an hour are few, and each failure has all GPUs polled.
func TestWatchHealth_WaitFailsForEver_BacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(1)
		d.set(nvml.ERROR_UNKNOWN, "nvmlEventSetWait_v2")
		w := watch(t, d)
		assert.Equal(t, []gpu.HealthEvent{{}}, w.received())
		time.Sleep(time.Second - time.Millisecond)
		assert.Equal(t, 1, d.count("nvmlEventSetCreate"))
		time.Sleep(2 * time.Millisecond)
		assert.Equal(t, []gpu.HealthEvent{{}, {}}, w.received(), "of the new set, and of its wait")
		time.Sleep(time.Hour)
		assert.InDelta(t, 3600/30, d.count("nvmlEventSetWait_v2"), 5)
		assert.InDelta(t, 2*3600/30, len(w.received()), 10)
		assert.True(t, w.reports(t, firstGPU))
		d.set(nvml.SUCCESS)
		time.Sleep(time.Minute)
		w.received()
		d.post(t, nvml.EventData{Device: d.gpus[0], EventType: nvml.EventTypeXidCriticalError, EventData: 48})
		assert.Equal(t, []gpu.HealthEvent{{GPU: firstGPU, XID: 48}}, w.received())
		d.set(nvml.ERROR_UNKNOWN, "nvmlEventSetWait_v2")
		time.Sleep(2 * time.Second)
		assert.Len(t, w.received(), 3, "after a success the pause is short again")
		w.end(t)
	})
}

// TestWatchHealth_WaitInterrupted_NoHotLoop: a wait may return early without an event, every time.
func TestWatchHealth_WaitInterrupted_NoHotLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(1)
		d.set(nvml.ERROR_TIMEOUT, "nvmlEventSetWait_v2")
		w := watch(t, d)
		time.Sleep(time.Minute)
		assert.InDelta(t, 60*1000/20, d.count("nvmlEventSetWait_v2"), 5)
		assert.Empty(t, w.received())
		w.end(t)
	})
}

// TestWatchHealth_GPULost_SetWithoutIt: a wait on a set with a lost GPU fails at once. When the GPU is back, it is registered again.
func TestWatchHealth_GPULost_SetWithoutIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(2)
		w := watch(t, d)
		d.gpus[0].answer(nvml.ERROR_GPU_IS_LOST, "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlDeviceGetPerformanceState")
		d.set(nvml.ERROR_GPU_IS_LOST, "nvmlEventSetWait_v2")
		time.Sleep(eventWait)
		assert.Contains(t, w.received(), gpu.HealthEvent{})
		d.set(nvml.SUCCESS)
		time.Sleep(2 * time.Second)
		require.Len(t, d.open(), 1)
		assert.False(t, d.open()[0].has(d.gpus[0]))
		assert.True(t, d.open()[0].has(d.gpus[1]))
		assert.Contains(t, w.received(), gpu.HealthEvent{}, "an event may have been missed")
		assert.False(t, w.reports(t, firstGPU))
		w.inspected(t)
		time.Sleep(time.Second)
		d.gpus[0].answer(nvml.SUCCESS)
		w.inspected(t)
		time.Sleep(time.Second)
		assert.True(t, d.open()[0].has(d.gpus[0]))
		assert.True(t, w.reports(t, firstGPU))
		w.end(t)
	})
}

// TestWatchHealth_RegistrationBreaksSet_SetWithoutThatGPU: after an unknown error the set is in an undefined state.
func TestWatchHealth_RegistrationBreaksSet_SetWithoutThatGPU(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(3)
		d.gpus[1].answer(nvml.ERROR_UNKNOWN, "nvmlDeviceRegisterEvents")
		w := watch(t, d)
		time.Sleep(5 * time.Second)
		require.Len(t, d.open(), 1)
		assert.Equal(t, 2, d.count("nvmlEventSetCreate"))
		assert.Equal(t, 2, d.open()[0].size())
		assert.False(t, w.reports(t, secondGPU))
		w.end(t)
	})
}

// TestWatchHealth_MIGModeChange_NoSetMeanwhile: a registered GPU is in use, and nothing can be unregistered. Afterwards the new handle is
// registered, and all GPUs are polled.
func TestWatchHealth_MIGModeChange_NoSetMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(2)
		w := watch(t, d)
		g := d.gpus[0]
		release := g.block("nvmlDeviceSetMigMode")
		changed := make(chan error, 1)
		go func() { changed <- w.SetMIGMode(t.Context(), firstGPU, true) }()
		time.Sleep(eventWait)
		synctest.Wait()
		assert.Equal(t, 1, g.hanging())
		assert.Empty(t, d.open())
		time.Sleep(3 * time.Second)
		assert.Empty(t, d.open(), "none is created during the change")
		assert.True(t, w.reports(t, firstGPU), "that is so for a short time only")
		assert.Empty(t, w.received())
		release()
		require.NoError(t, <-changed)
		synctest.Wait()
		require.Len(t, d.open(), 1)
		assert.True(t, d.open()[0].has(renewed{g}))
		assert.Equal(t, []gpu.HealthEvent{{}}, w.received())
		d.post(t, nvml.EventData{Device: renewed{g}, EventType: nvml.EventTypeXidCriticalError, EventData: 94})
		assert.Equal(t, []gpu.HealthEvent{{GPU: firstGPU, XID: 94}}, w.received())

		_, _ = d.gpus[1].SetMigMode(nvml.DEVICE_MIG_ENABLE) // another process
		w.inspected(t)
		time.Sleep(time.Second)
		require.Len(t, d.open(), 1)
		assert.True(t, d.open()[0].has(renewed{d.gpus[1]}))
		assert.False(t, d.open()[0].has(d.gpus[1]))
		assert.Equal(t, []gpu.HealthEvent{{}}, w.received())
		w.end(t)
	})
}

// TestSetMIGMode_CallerGivesUpWaitingForEvents_NothingChanged: the wait for an event is not over yet.
func TestSetMIGMode_CallerGivesUpWaitingForEvents_NothingChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(1)
		w := watch(t, d)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, w.SetMIGMode(ctx, firstGPU, true), context.DeadlineExceeded)
		assert.Zero(t, d.count("nvmlDeviceSetMigMode"))
		d.post(t, nvml.EventData{Device: d.gpus[0], EventType: nvml.EventTypeGpuUnavailableError})
		assert.Equal(t, []gpu.HealthEvent{{GPU: firstGPU}}, w.received())
		w.end(t)
	})
}

// TestWatchHealth_SessionClosed_SetFreedFirst: a set needs the library.
func TestWatchHealth_SessionClosed_SetFreedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(2)
		w := watch(t, d)
		require.Len(t, d.open(), 1)
		require.NoError(t, w.Close())
		assert.Empty(t, d.open())
		assert.Zero(t, d.initialised())
		require.ErrorIs(t, <-w.done, gpu.ErrDriverNotLoaded)
		require.NoError(t, w.Close())
		require.ErrorIs(t, w.WatchHealth(t.Context(), nil), gpu.ErrDriverNotLoaded)
	})
}

func TestWatchHealth_DriverLeaves_Ends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(1)
		w := watch(t, d)
		d.mu.Lock()
		d.loaded = false
		d.mu.Unlock()
		require.ErrorIs(t, <-w.done, gpu.ErrDriverNotLoaded)
		require.NoError(t, w.Close())
	})
}

// TestWatchHealth_WaitHangs_SetNotFreedUnderIt: no further wait is made until it returns; inspections and polls go on.
func TestWatchHealth_WaitHangs_SetNotFreedUnderIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(1)
		w := watch(t, d)
		release := d.open()[0].hang()
		time.Sleep(time.Hour)
		waits := d.count("nvmlEventSetWait_v2")
		assert.NotEmpty(t, w.received())
		assert.False(t, w.reports(t, firstGPU))
		require.NoError(t, w.SetMIGMode(t.Context(), firstGPU, true))
		release()
		time.Sleep(time.Minute)
		assert.Greater(t, d.count("nvmlEventSetWait_v2"), waits)
		assert.True(t, w.reports(t, firstGPU))
		w.stop()
		require.NoError(t, <-w.done)
		assert.Len(t, d.open(), 1, "the set of the wait that hung")
		require.NoError(t, w.Close())
	})
}

// TestWatchHealth_RegistrationHangs_SetNotFreedUnderIt: the other GPU is watched, and a MIG mode change gets another set.
func TestWatchHealth_RegistrationHangs_SetNotFreedUnderIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(2)
		release := d.gpus[0].block("nvmlDeviceRegisterEvents")
		w := watch(t, d)
		time.Sleep(6 * time.Second)
		require.Len(t, d.open(), 1)
		assert.True(t, d.open()[0].has(d.gpus[1]))
		assert.False(t, w.reports(t, firstGPU))
		assert.True(t, w.reports(t, secondGPU))
		require.NoError(t, w.SetMIGMode(t.Context(), secondGPU, true))
		synctest.Wait()
		require.Len(t, d.open(), 2)
		assert.True(t, d.open()[1].has(renewed{d.gpus[1]}))
		release()
		synctest.Wait()
		w.stop()
		require.NoError(t, <-w.done)
		assert.Len(t, d.open(), 1, "the set of the registration that hung")
		require.NoError(t, w.Close())
	})
}
