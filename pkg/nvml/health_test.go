package nvml

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

func action(a gpu.RecoveryAction) *gpu.RecoveryAction { return &a }

// TestHealth_EachField_InReading: a field that the driver does not report is unset.
func TestHealth_EachField_InReading(t *testing.T) {
	t.Parallel()
	none := action(gpu.RecoveryNone)
	for name, c := range map[string]struct {
		sicken func(*sickness)
		want   gpu.HealthReading
	}{
		"healthy":           {func(*sickness) {}, gpu.HealthReading{Action: none}},
		"recovery action":   {func(s *sickness) { s.fields[230] = 4 }, gpu.HealthReading{Action: action(4)}},
		"unknown action":    {func(s *sickness) { s.fields[230] = 99 }, gpu.HealthReading{Action: action(99)}},
		"no field 230":      {func(s *sickness) { delete(s.fields, 230) }, gpu.HealthReading{}},
		"field unknown":     {func(s *sickness) { s.fieldReturns[230] = nvml.ERROR_UNKNOWN }, gpu.HealthReading{}},
		"remap pending":     {func(s *sickness) { s.fields[144] = 1 }, gpu.HealthReading{Action: none, RowRemapPending: true}},
		"remap failure":     {func(s *sickness) { s.fields[145] = 1 }, gpu.HealthReading{Action: none, RowRemapFailure: true}},
		"retired pages":     {func(s *sickness) { s.fields[31] = 1 }, gpu.HealthReading{Action: none, RetirementPending: true}},
		"flag not reported": {func(s *sickness) { s.fields[144], s.fieldReturns[144] = 1, nvml.ERROR_NOT_SUPPORTED }, gpu.HealthReading{Action: none}},
		"flag not available": {
			func(s *sickness) { s.fields[145] = 0xffffffff }, gpu.HealthReading{Action: none},
		},
		"fabric completed": {func(s *sickness) { s.fabric.State = 3 }, gpu.HealthReading{Action: none, Fabric: gpu.FabricCompleted}},
		"fabric failed": {
			func(s *sickness) { s.fabric = nvml.GpuFabricInfo{State: 3, Status: uint32(nvml.ERROR_UNKNOWN)} },
			gpu.HealthReading{Action: none, Fabric: gpu.FabricNotReady},
		},
		"fabric not started": {func(s *sickness) { s.fabric.State = 1 }, gpu.HealthReading{Action: none, Fabric: gpu.FabricNotReady}},
		"fabric in progress": {func(s *sickness) { s.fabric.State = 2 }, gpu.HealthReading{Action: none, Fabric: gpu.FabricNotReady}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, g := seeing(t)
			g.sicken(c.sicken)
			c.want.UUID, c.want.Events = firstGPU, true
			assert.Equal(t, c.want, s.Health(t.Context(), &gpu.GPU{UUID: firstGPU}))
		})
	}
}

// TestHealth_FieldOfLostGPU_Lost: the GPU fell off the bus between the inspection and this call.
func TestHealth_FieldOfLostGPU_Lost(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	g.sicken(func(s *sickness) { s.fieldReturns[144] = nvml.ERROR_GPU_IS_LOST })
	r := s.Health(t.Context(), &gpu.GPU{UUID: firstGPU})
	require.ErrorIs(t, r.Err, gpu.ErrLost)
	require.EqualError(t, r.Err, "nvmlDeviceGetFieldValues on GPU 0 (health): field 144: GPU is lost (NVML GPU_IS_LOST)")
	g.answer(nvml.ERROR_GPU_IS_LOST, fieldValues)
	require.ErrorIs(t, s.Health(t.Context(), &gpu.GPU{UUID: firstGPU}).Err, gpu.ErrLost)
	g.answer(nvml.ERROR_UNKNOWN, fieldValues)
	assert.Equal(t, gpu.HealthReading{UUID: firstGPU, Events: true}, s.Health(t.Context(), &gpu.GPU{UUID: firstGPU}), "no field is known")
}

// TestHealth_PeriodicPoll_OneCallMore than the inspection alone makes for each GPU; boards without a fabric are asked for it once.
func TestHealth_PeriodicPoll_OneCallMore(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(3)
	d.gpus[1].sicken(func(s *sickness) { s.fabric.State = 3 })
	d.gpus[2].answer(nvml.ERROR_NOT_SUPPORTED, fabricInfo)
	s := openFake(t, d)
	poll := func() map[string]int {
		d.mu.Lock()
		d.calls = map[string]int{}
		d.mu.Unlock()
		gpus, _, err := s.GPUs(t.Context())
		require.NoError(t, err)
		for i := range gpus {
			require.NoError(t, s.Health(t.Context(), &gpus[i]).Err)
		}
		return d.calls
	}
	assert.Equal(t, 3, poll()[fabricInfo])
	assert.Equal(t, map[string]int{
		"nvmlDeviceGetCount_v2": 1, "nvmlDeviceGetPerformanceState": 3, "nvmlDeviceGetMigMode": 3, "nvmlDeviceGetFieldValues": 3, fabricInfo: 1,
	}, poll())
	require.NoError(t, s.Alive(t.Context(), firstGPU))
	assert.Equal(t, 4, d.count("nvmlDeviceGetPerformanceState"))
}

// TestHealth_FabricUnknown_AskedAgain: only "not supported" is final.
func TestHealth_FabricUnknown_AskedAgain(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	g.sicken(func(s *sickness) { s.fabric.State = 3 })
	g.answer(nvml.ERROR_UNKNOWN, fabricInfo)
	r := s.Health(t.Context(), &gpu.GPU{UUID: firstGPU})
	require.NoError(t, r.Err)
	assert.Empty(t, r.Fabric)
	g.answer(nvml.SUCCESS)
	assert.Equal(t, gpu.FabricCompleted, s.Health(t.Context(), &gpu.GPU{UUID: firstGPU}).Fabric)
}

// stuck counts the calls that hang.
func stuck(s *Session, targets ...library.Target) (count int) {
	for _, target := range targets {
		if s.gate.Blocked(target) != nil {
			count++
		}
	}
	return count
}

// TestHealth_GPUHangsInEveryCall_TwoThreads: inspections, polls, checks and registrations at the same time; another GPU and claims go on.
func TestHealth_GPUHangsInEveryCall_TwoThreads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(2)
		s, err := open(t.Context(), d, library.NewGate(), Options{Deadline: 5 * time.Second})
		require.NoError(t, err)
		sick, well := d.gpus[0].looked(t, s), d.gpus[1]
		id, _ := well.GetUUID()
		release := sick.block(anySymbol)
		before := d.total()
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- s.WatchHealth(ctx, func(gpu.HealthEvent) {}) }()
		begun := time.Now()
		for range 3 {
			go func() { _ = s.Alive(t.Context(), firstGPU) }()
			go func() { _ = s.Health(t.Context(), &gpu.GPU{UUID: firstGPU}) }()
		}
		gpus, faults, err := s.GPUs(t.Context())
		require.NoError(t, err)
		assert.Len(t, gpus, 1)
		require.ErrorIs(t, faults[0].Err, gpu.ErrTimeout)
		assert.LessOrEqual(t, time.Since(begun), 5*time.Second)
		require.NoError(t, s.Health(t.Context(), &gpus[0]).Err)
		_, err = s.MIGMode(t.Context(), gpu.UUID(id))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		_, _, err = s.GPUs(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 2, stuck(s, library.GPUAt(0), healthOf(0)))
		assert.Zero(t, stuck(s, eventSet, library.WholeDriver))
		assert.Equal(t, 2, sick.hanging(), "threads")
		assert.Greater(t, d.total(), before)
		assert.True(t, d.open()[0].has(well), "the other one is watched")
		release()
		cancel()
		require.NoError(t, <-watched)
		require.NoError(t, s.Close())
	})
}

// TestHealth_HangsInHealthCall_BlocksNoClaim and no inspection.
func TestHealth_HangsInHealthCall_BlocksNoClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(1)
		s, err := open(t.Context(), d, library.NewGate(), Options{Deadline: 5 * time.Second})
		require.NoError(t, err)
		g := d.gpus[0].looked(t, s)
		release := g.block(fieldValues)
		reading := make(chan gpu.HealthReading, 1)
		go func() { reading <- s.Health(t.Context(), &gpu.GPU{UUID: firstGPU}) }()
		synctest.Wait()
		require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
		_, faults, err := s.GPUs(t.Context())
		require.NoError(t, err)
		assert.Empty(t, faults)
		assert.NoError(t, (<-reading).Err, "a change has begun since: the reading is the previous one")
		r := s.Health(t.Context(), &gpu.GPU{UUID: firstGPU})
		require.ErrorIs(t, r.Err, gpu.ErrTimeout)
		require.EqualError(t, r.Err, "nvmlDeviceGetFieldValues on GPU 0 (health): no answer within the deadline of 5s")
		release()
	})
}

// TestHealth_DuringChange_PreviousReading: a board that is being reset would seem broken.
func TestHealth_DuringChange_PreviousReading(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	g.sicken(func(s *sickness) { s.fields[144] = 1 })
	before := s.Health(t.Context(), &gpu.GPU{UUID: firstGPU})
	require.True(t, before.RowRemapPending)
	_, _, done, err := s.change(t.Context(), firstGPU)
	require.NoError(t, err)
	calls := g.driver.total()
	g.answer(nvml.ERROR_RESET_REQUIRED, fieldValues, "nvmlDeviceGetPerformanceState")
	assert.Equal(t, before, s.Health(t.Context(), &gpu.GPU{UUID: firstGPU}))
	require.NoError(t, s.Alive(t.Context(), firstGPU))
	assert.Equal(t, calls, g.driver.total(), "no call")
	done()
	require.ErrorIs(t, s.Health(t.Context(), &gpu.GPU{UUID: firstGPU}).Err, gpu.ErrLost)
	require.ErrorIs(t, s.Alive(t.Context(), firstGPU), gpu.ErrLost)
}

func TestHealth_UnknownGPU_NotFound(t *testing.T) {
	t.Parallel()
	s, _ := seeing(t)
	r := s.Health(t.Context(), &gpu.GPU{UUID: "GPU-1"})
	assert.Equal(t, gpu.UUID("GPU-1"), r.UUID)
	require.ErrorIs(t, r.Err, gpu.ErrNotFound)
	require.ErrorIs(t, s.Alive(t.Context(), "GPU-1"), gpu.ErrNotFound)
}
