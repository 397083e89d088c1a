package sampler

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

func has(g *metrics.GPU, field metrics.Field) bool {
	_, ok := g.Values.Get(field)
	return ok
}

func TestSampler_Rounds_EachInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		s := started(t, Options{Library: f})
		synctest.Wait()
		first := s.Snapshot()
		require.Len(t, first.GPUs, 2)
		assert.True(t, first.GPUs[0].Up)
		assert.False(t, has(first.GPUs[0], metrics.FieldSMActive), "a baseline has no value")
		pass(100 * time.Second)
		for _, id := range []gpu.UUID{"GPU-0", "GPU-1"} {
			assert.InDelta(t, 11, f.rounds(id), 1, "a round each 10 s, and one at once")
			assert.True(t, has(gpuOf(t, s, id), metrics.FieldSMActive))
			assert.Equal(t, 10*time.Second, gpuOf(t, s, id).Interval)
		}
		assert.False(t, has(first.GPUs[0], metrics.FieldSMActive), "what was handed on does not change")
		assert.Greater(t, s.Snapshot().Generation, first.Generation)
		require.NoError(t, s.Status().Err)
	})
}

// TestSampler_ShortestInterval_SamplesNotTooClose: GPM cannot compare two samples that are less than 100 ms apart.
func TestSampler_ShortestInterval_SamplesNotTooClose(t *testing.T) {
	t.Parallel()
	for _, calls := range []time.Duration{0, 7 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(2)
			first := f.gpus["GPU-0"]
			first.calls = calls
			s := started(t, Options{Library: f, Interval: sampleGap, MinInterval: sampleGap})
			pass(time.Second)
			f.change(func() { first.calls = 0 }) // rounds become shorter, and samples are taken earlier in them
			pass(9 * time.Second)
			assert.Greater(t, f.rounds("GPU-0"), 90)
			f.change(func() {
				for _, g := range f.gpus {
					assert.GreaterOrEqual(t, g.closest, sampleGap)
				}
			})
			assert.True(t, gpuOf(t, s, "GPU-0").Up)
		})
	}
}

// TestExpire_GPUAnswersMeanwhile_StaysUp makes both goroutines wait for the lock for so long that the runtime hands it from one to the
// other: a GPU that has responded is up, in either order.
func TestExpire_GPUAnswersMeanwhile_StaysUp(t *testing.T) {
	t.Parallel()
	s := New(Options{Library: newFake(1)})
	t.Cleanup(s.stop)
	identity := metrics.Identity{UUID: "GPU-0"}
	answer := func(at time.Time) { s.publish(&metrics.GPU{Identity: identity, Up: true, At: at, Interval: time.Hour}) }
	const starves = 2 * time.Millisecond
	for range 10 {
		answer(time.Now().Add(-missed * time.Hour))
		var both sync.WaitGroup
		s.mu.Lock()
		for _, do := range []func(){func() { s.expire(identity) }, func() { answer(time.Now()) }} {
			both.Go(do)
			for began := time.Now(); time.Since(began) < starves; {
				runtime.Gosched()
			}
		}
		s.mu.Unlock()
		s.mu.Lock() // the first waiter finds the lock taken after its wait
		for began := time.Now(); time.Since(began) < starves; {
			runtime.Gosched()
		}
		s.mu.Unlock()
		both.Wait()
		require.True(t, gpuOf(t, s, "GPU-0").Up)
	}
}

func TestSampler_Changed_ClosedByRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := started(t, Options{Library: newFake(1)})
		synctest.Wait()
		changed := s.Changed()
		generation := s.Snapshot().Generation
		<-changed
		assert.Equal(t, generation+1, s.Snapshot().Generation)
	})
}

func TestSampler_GPUHangs_VanishesAndOthersGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		s := started(t, Options{Library: f})
		pass(25 * time.Second)
		last := gpuOf(t, s, "GPU-0").At
		f.change(func() { f.gpus["GPU-0"].hang = true })
		rounds := f.rounds("GPU-1")
		pass(time.Until(last.Add(30*time.Second - time.Millisecond)))
		assert.True(t, gpuOf(t, s, "GPU-0").Up, "not yet three intervals")
		pass(2 * time.Millisecond)
		hung := gpuOf(t, s, "GPU-0")
		assert.False(t, hung.Up)
		assert.Equal(t, last, hung.At)
		assert.Equal(t, metrics.Values{}, hung.Values.Only(without(metrics.Events)))
		assert.True(t, has(hung, metrics.FieldECCUncorrectedVolatile), "errors that it may have failed for")
		assert.Greater(t, f.rounds("GPU-1"), rounds+1)
		assert.True(t, gpuOf(t, s, "GPU-1").Up)
		assert.NotZero(t, s.Status().Errors["GPU-0"])
		assert.Zero(t, s.Status().Errors["GPU-1"])

		f.change(func() { f.gpus["GPU-0"].hang = false })
		baselines := f.baselines("GPU-0", WholeGPU)
		pass(12 * time.Second)
		back := gpuOf(t, s, "GPU-0")
		assert.True(t, back.Up)
		assert.False(t, has(back, metrics.FieldSMActive))
		assert.Equal(t, baselines+1, f.baselines("GPU-0", WholeGPU), "after a gap there is a new baseline")
	})
}

// A suspended machine fails no call: a mean over the suspension would not describe the present.
func TestSampler_MachineSuspended_NewBaseline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		s := started(t, Options{Library: f})
		pass(25 * time.Second)
		require.True(t, has(gpuOf(t, s, "GPU-0"), metrics.FieldSMActive))
		baselines := f.baselines("GPU-0", WholeGPU)
		f.change(func() { f.gpus["GPU-0"].pause = 2 * time.Minute })
		pass(2*time.Minute + 11*time.Second)
		assert.Equal(t, baselines+1, f.baselines("GPU-0", WholeGPU))
	})
}

func TestSampler_GPUNeverAnswers_DownAndAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.faults = []gpu.Fault{{Index: 1, BusID: "0000:3c:00.0", Err: gpu.ErrLost}}
		s := started(t, Options{Library: f})
		synctest.Wait()
		require.Len(t, s.Snapshot().GPUs, 1, "a GPU of which it is not known which one it is has no series")
		assert.Equal(t, 1, s.Status().Unidentified)
		f.change(func() {
			f.faults = nil
			second := newFake(2).gpus["GPU-1"]
			f.gpus["GPU-1"] = second
		})
		pass(11 * time.Second)
		require.Len(t, s.Snapshot().GPUs, 2)
		assert.True(t, s.Snapshot().GPUs[1].Up)
		assert.Zero(t, s.Status().Unidentified)
	})
}

func TestSampler_ClaimsWant_SetsAddedShortestIntervalWins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := newFake(1), &wants{}
		s := started(t, Options{Library: f, Wanted: w.of})
		synctest.Wait()
		assert.False(t, f.asked("GPU-0").Has(metrics.FieldClockVideo))
		w.set(Want{Claim: "a", Sets: []string{"Clocks"}, Interval: 5 * time.Second}, Want{Claim: "b", Interval: 200 * time.Millisecond})
		pass(11 * time.Second)
		assert.True(t, f.asked("GPU-0").Has(metrics.FieldClockVideo))
		assert.True(t, f.asked("GPU-0").Has(metrics.FieldPowerUsage), "the node's sets stay")
		assert.Equal(t, time.Second, gpuOf(t, s, "GPU-0").Interval, "not below the shortest interval")
		assert.Equal(t, 1, s.Status().IntervalsLimited)
		rounds := f.rounds("GPU-0")
		pass(10 * time.Second)
		assert.InDelta(t, rounds+10, f.rounds("GPU-0"), 1)
		w.set()
		pass(2 * time.Second)
		assert.Equal(t, 10*time.Second, gpuOf(t, s, "GPU-0").Interval)
		assert.Zero(t, s.Status().IntervalsLimited)
		s.Measure(metrics.FieldFanSpeed)
		pass(11 * time.Second)
		assert.True(t, f.asked("GPU-0").Has(metrics.FieldFanSpeed))
		assert.False(t, f.asked("GPU-0").Has(metrics.FieldClockVideo), "the node's sets and what was added")
	})
}

func TestSampler_DriverUnloaded_WaitsAndReopens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		s := started(t, Options{Library: f})
		pass(15 * time.Second)
		require.True(t, has(gpuOf(t, s, "GPU-0"), metrics.FieldSMActive))
		f.change(func() { f.gpus["GPU-0"].err, f.openErr = gpu.ErrDriverNotLoaded, gpu.ErrDriverNotLoaded })
		pass(15 * time.Second)
		assert.False(t, gpuOf(t, s, "GPU-0").Up)
		require.ErrorIs(t, s.Status().Err, gpu.ErrDriverNotLoaded)
		f.change(func() { f.gpus["GPU-0"].err, f.openErr = nil, nil })
		baselines := f.baselines("GPU-0", WholeGPU)
		pass(10 * time.Second)
		assert.True(t, gpuOf(t, s, "GPU-0").Up)
		assert.Equal(t, baselines+1, f.baselines("GPU-0", WholeGPU))
		require.NoError(t, s.Status().Err)
		assert.Zero(t, s.Status().Reopened)
	})
}

// TestSampler_NoGPUs_RetriedUntilSome: a session knows only the GPUs that existed when it was opened.
func TestSampler_NoGPUs_RetriedUntilSome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		s := started(t, Options{Library: f})
		pass(time.Minute)
		require.ErrorIs(t, s.Status().Err, errNoGPUs)
		assert.InDelta(t, 9, f.opens(), 3, "the waits grow up to the interval")
		f.change(func() { f.gpus = newFake(1).gpus })
		pass(11 * time.Second)
		require.NoError(t, s.Status().Err)
		assert.True(t, gpuOf(t, s, "GPU-0").Up)
	})
}

// TestSampler_DriverUnloadedBetweenRounds_SessionEnds: a call for XIDs is always in progress.
func TestSampler_DriverUnloadedBetweenRounds_SessionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		s := started(t, Options{Library: f, Interval: time.Hour})
		pass(time.Second)
		f.change(func() { f.xidErr, f.openErr = gpu.ErrDriverNotLoaded, gpu.ErrDriverNotLoaded })
		pass(time.Second)
		require.ErrorIs(t, s.Status().Err, gpu.ErrDriverNotLoaded)
		assert.False(t, gpuOf(t, s, "GPU-0").Up)
	})
}

func TestRun_LibraryReplaced_Ends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.openErr = errors.Join(errors.New("loading"), gpu.ErrDriverReplaced)
		require.ErrorIs(t, New(Options{Library: f}).Run(t.Context()), gpu.ErrDriverReplaced)
	})
}

func TestSampler_XIDs_CountedByCodeAndInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		s := started(t, Options{Library: f})
		synctest.Wait()
		assert.Empty(t, gpuOf(t, s, "GPU-0").XIDs)
		f.change(func() {
			f.xids = []fakeXID{
				{"GPU-0", metrics.XID{Code: 79, GPUInstance: -1}}, {"GPU-0", metrics.XID{Code: 31, GPUInstance: 2}},
				{"GPU-0", metrics.XID{Code: 31, GPUInstance: 2}}, {"GPU-0", metrics.XID{Code: 31, GPUInstance: -1}},
			}
		})
		pass(time.Second)
		xids := gpuOf(t, s, "GPU-0").XIDs
		require.Len(t, xids, 3)
		assert.Equal(t, metrics.XID{Code: 31, GPUInstance: -1, Count: 1, Last: xids[0].Last, Times: []time.Time{xids[0].Last}}, xids[0])
		assert.Equal(t, metrics.XID{Code: 31, GPUInstance: 2, Count: 2, Last: xids[1].Last, Times: xids[1].Times}, xids[1])
		assert.Len(t, xids[1].Times, 2)
		assert.False(t, xids[1].Last.IsZero())
		assert.Empty(t, gpuOf(t, s, "GPU-1").XIDs)
		pass(time.Minute)
		assert.Len(t, gpuOf(t, s, "GPU-0").XIDs, 3, "rounds keep them")
	})
}

func TestSampler_Processes_PIDAndStartTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.gpus["GPU-0"].processes = []metrics.Process{
			{PID: 10, SM: 0.5, ServesClients: true}, {PID: 11, SM: 0.5, ServesClients: true}, {PID: 12, SM: 0.5},
		}
		proc := &fakeProcesses{list: map[uint32]metrics.ProcessIdentity{
			10: {Start: 1, Command: "python3", ContainerID: "one"}, 11: {Start: 1, Server: true}, 12: {Start: 1, Server: true},
		}}
		s := started(t, Options{Library: f, Processes: proc})
		synctest.Wait()
		processes := gpuOf(t, s, "GPU-0").Processes
		require.Len(t, processes, 3)
		assert.Equal(t, "one", processes[0].ContainerID)
		assert.False(t, processes[0].ServesClients)
		assert.True(t, processes[1].ServesClients)
		assert.False(t, processes[2].ServesClients, "a client of MPS is no server")

		proc.mu.Lock()
		proc.list[10] = metrics.ProcessIdentity{Start: 2, Command: "other", ContainerID: "two"}
		delete(proc.list, 12)
		proc.mu.Unlock()
		pass(10 * time.Second)
		g := gpuOf(t, s, "GPU-0")
		assert.Equal(t, "two", g.Processes[0].ContainerID)
		assert.True(t, math.IsNaN(g.Processes[0].SM), "what was used may be the use of the process before")
		assert.InDelta(t, 0.5, g.Processes[1].SM, 0)
		assert.Empty(t, g.Processes[2].Command)
		assert.False(t, g.ProcessesHidden, "it may have exited")
		pass(10 * time.Second)
		assert.InDelta(t, 0.5, gpuOf(t, s, "GPU-0").Processes[0].SM, 0)
		assert.True(t, gpuOf(t, s, "GPU-0").ProcessesHidden, "it is still on the GPU, and its pid means nothing here")
	})
}

// TestSampler_OwnPIDNamespace_HiddenAndNoneIdentified: a pid of the host may be another process here, and lists without processes prove
// nothing.
func TestSampler_OwnPIDNamespace_HiddenAndNoneIdentified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		f.gpus["GPU-0"].processes = []metrics.Process{{PID: 10, SM: 0.5}}
		proc := &fakeProcesses{hides: true, list: map[uint32]metrics.ProcessIdentity{10: {Start: 1, ContainerID: "other"}}}
		s := started(t, Options{Library: f, Processes: proc})
		synctest.Wait()
		assert.Equal(t, metrics.ProcessIdentity{}, gpuOf(t, s, "GPU-0").Processes[0].ProcessIdentity)
		assert.True(t, gpuOf(t, s, "GPU-0").ProcessesHidden)
		assert.True(t, gpuOf(t, s, "GPU-1").ProcessesHidden, "without a process in its lists, too")
	})
}

// TestSampler_ProcessExits_OthersNotHidden: a process that is not reaped may stay on the GPU for a long time.
func TestSampler_ProcessExits_OthersNotHidden(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.gpus["GPU-0"].processes = []metrics.Process{{PID: 10, SM: 0.5}, {PID: 11, SM: 0.5}}
		s := started(t, Options{Library: f, Processes: &fakeProcesses{list: map[uint32]metrics.ProcessIdentity{10: {Start: 1}, 11: {}}}})
		pass(60 * time.Second)
		g := gpuOf(t, s, "GPU-0")
		assert.False(t, g.ProcessesHidden)
		assert.InDelta(t, 0.5, g.Processes[0].SM, 0)
	})
}

// TestSampler_SamplesOfTheFuture_Counted: samples of all rounds are counted, and the snapshot shows that the driver reports samples.
func TestSampler_SamplesOfTheFuture_Counted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.gpus["GPU-0"].ahead = 2
		s := started(t, Options{Library: f})
		pass(25 * time.Second)
		assert.Equal(t, 2*uint64(f.rounds("GPU-0")), s.Status().SamplesDropped)
		assert.True(t, gpuOf(t, s, "GPU-0").ProcessesSampled)
	})
}
