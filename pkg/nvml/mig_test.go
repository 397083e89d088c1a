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

const firstGPU = gpu.UUID("GPU-00000000-0000")

// seeing returns a session that has inspected one GPU.
func seeing(t *testing.T) (*Session, *fakeGPU) {
	t.Helper()
	d := newFakeDriver(1)
	s := openFake(t, d)
	return s, d.gpus[0].looked(t, s)
}

func (g *fakeGPU) looked(t *testing.T, s *Session) *fakeGPU {
	t.Helper()
	_, faults, err := s.GPUs(t.Context())
	require.NoError(t, err)
	require.Empty(t, faults)
	return g
}

// seen returns the instances that an inspection shows.
func seen(t *testing.T, s *Session) []gpu.Instance {
	t.Helper()
	gpus, faults, err := s.GPUs(t.Context())
	require.NoError(t, err)
	require.Empty(t, faults)
	return gpus[0].MIG.Instances
}

func TestInstances_CreatedAndDestroyed_Listed(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	whole := gpu.Placement{Start: 0, Size: 8}
	_, err := s.CreateInstance(t.Context(), firstGPU, 0, whole)
	var unsupported *gpu.UnsupportedError
	require.ErrorAs(t, err, &unsupported, "outside MIG mode")
	require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
	_, err = s.CreateInstance(t.Context(), firstGPU, 99, whole)
	require.ErrorIs(t, err, gpu.ErrNotFound)
	require.EqualError(t, err, "finding MIG profile 99 on GPU 0: not found")

	gi, err := s.CreateInstance(t.Context(), firstGPU, 0, whole)
	require.NoError(t, err)
	_, err = s.CreateInstance(t.Context(), firstGPU, 0, whole)
	require.ErrorIs(t, err, gpu.ErrInUse, "it does not fit")
	half := gpu.Instance{ID: gi, Profile: 0, Placement: whole}
	assert.Equal(t, []gpu.Instance{half}, seen(t, s), "one without a compute instance is seen")
	c, err := s.CreateComputeInstance(t.Context(), firstGPU, gi)
	require.NoError(t, err)
	assert.Equal(t, gpu.ComputeInstance{ID: 0, Slices: 7, UUID: "MIG-3"}, c)
	full := half
	full.Compute = []gpu.ComputeInstance{c}
	there, err := s.Instances(t.Context(), firstGPU)
	require.NoError(t, err)
	assert.Equal(t, []gpu.Instance{full}, there)

	require.ErrorIs(t, s.DestroyInstance(t.Context(), firstGPU, gi), gpu.ErrInUse)
	require.ErrorIs(t, s.DestroyComputeInstance(t.Context(), firstGPU, gi, 5), gpu.ErrNotFound)
	require.NoError(t, s.DestroyComputeInstance(t.Context(), firstGPU, gi, 0))
	require.NoError(t, s.DestroyInstance(t.Context(), firstGPU, gi))
	require.ErrorIs(t, s.DestroyInstance(t.Context(), firstGPU, gi), gpu.ErrNotFound)
	require.ErrorIs(t, s.DestroyComputeInstance(t.Context(), firstGPU, gi, 0), gpu.ErrNotFound)
	_, err = s.CreateComputeInstance(t.Context(), firstGPU, gi)
	require.ErrorIs(t, err, gpu.ErrNotFound)
	assert.Empty(t, seen(t, s))
	assert.Equal(t, 1, g.handles, "the handle was taken again when the mode had changed, and only then")
}

// TestCreateInstance_IDUnknown_NotInUse: an instance whose ID the driver does not return yet exists and must be removed.
func TestCreateInstance_IDUnknown_NotInUse(t *testing.T) {
	t.Parallel()
	whole := gpu.Placement{Size: 8}
	for _, answer := range []nvml.Return{nvml.ERROR_IN_USE, nvml.ERROR_NOT_READY, nvml.ERROR_INSUFFICIENT_RESOURCES} {
		s, g := seeing(t)
		require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
		g.answer(answer, "nvmlDeviceCreateGpuInstanceWithPlacement")
		_, err := s.CreateInstance(t.Context(), firstGPU, 0, whole)
		require.ErrorIs(t, err, gpu.ErrInUse)
		assert.Empty(t, seen(t, s))
		g.answer(answer, "nvmlGpuInstanceGetInfo")
		_, err = s.CreateInstance(t.Context(), firstGPU, 0, whole)
		require.NotErrorIs(t, err, gpu.ErrInUse)
		require.ErrorIs(t, err, gpu.ErrNotFound, "so that it is tried again")
		require.ErrorContains(t, err, "the GPU instance was created, but its ID is not found (nvmlGpuInstanceGetInfo on GPU 0: in use (NVML ")
		g.answer(nvml.SUCCESS)
		assert.Len(t, seen(t, s), 1)
	}
}

// TestInstance_OthersThere_NotInspected: one instance is read without inspecting the others.
func TestInstance_OthersThere_NotInspected(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	read := func(gi int, device gpu.MIGUUID) *gpu.Instance {
		i, err := s.Instance(t.Context(), firstGPU, gi, device)
		require.NoError(t, err)
		return i
	}
	assert.Nil(t, read(3, ""), "outside MIG mode")
	require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
	whole := gpu.Placement{Start: 0, Size: 8}
	gi, err := s.CreateInstance(t.Context(), firstGPU, 0, whole)
	require.NoError(t, err)
	empty := gpu.Instance{ID: gi, Profile: 0, Placement: whole}
	assert.Equal(t, &empty, read(gi, "MIG-3"), "it is not made yet")
	c, err := s.CreateComputeInstance(t.Context(), firstGPU, gi)
	require.NoError(t, err)
	filled := empty
	filled.Compute = []gpu.ComputeInstance{c}
	assert.Equal(t, &filled, read(gi, c.UUID))
	assert.Equal(t, &empty, read(gi, "MIG-2"), "another MIG device is in it")
	assert.Equal(t, &empty, read(gi, ""))
	assert.Nil(t, read(gi+1, c.UUID))
	occupied, err := s.Occupied(t.Context(), firstGPU)
	require.NoError(t, err)
	assert.Equal(t, []gpu.Instance{empty}, occupied)

	g.answer(nvml.ERROR_INVALID_ARGUMENT, "nvmlDeviceGetGpuInstanceId")
	assert.Equal(t, &empty, read(gi, c.UUID), "it is removed just now")
	g.answer(nvml.ERROR_UNKNOWN, "nvmlDeviceGetGpuInstanceId")
	_, err = s.Instance(t.Context(), firstGPU, gi, c.UUID)
	require.ErrorContains(t, err, "nvmlDeviceGetGpuInstanceId on GPU 0")
	g.answer(nvml.ERROR_UNKNOWN, "nvmlGpuInstanceGetInfo")
	_, err = s.Instance(t.Context(), firstGPU, gi, c.UUID)
	require.ErrorContains(t, err, "nvmlGpuInstanceGetInfo on GPU 0")
	_, err = s.Instance(t.Context(), "GPU-1", gi, c.UUID)
	require.EqualError(t, err, "GPU GPU-1 does not answer: not found")
}

// TestInstances_OneVanishes_NoFault: other processes remove instances during an inspection.
func TestInstances_OneVanishes_NoFault(t *testing.T) {
	t.Parallel()
	for _, symbol := range []string{"nvmlGpuInstanceGetInfo", "nvmlDeviceGetGpuInstanceId"} {
		s, g := seeing(t)
		require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
		gi, err := s.CreateInstance(t.Context(), firstGPU, 0, gpu.Placement{Size: 8})
		require.NoError(t, err)
		_, err = s.CreateComputeInstance(t.Context(), firstGPU, gi)
		require.NoError(t, err)
		g.answer(nvml.ERROR_INVALID_ARGUMENT, symbol)
		for _, i := range seen(t, s) {
			assert.Empty(t, i.Compute, symbol)
		}
		g.answer(nvml.ERROR_UNKNOWN, symbol)
		_, faults, err := s.GPUs(t.Context())
		require.NoError(t, err)
		require.Len(t, faults, 1, "any other answer is a fault")
	}
}

// TestDestroyInstance_LaterInspection_NotShown: also not by an inspection that skips the GPU because the next change is in flight. No
// record names the instance any more, so it would look like an administrator's.
func TestDestroyInstance_LaterInspection_NotShown(t *testing.T) {
	t.Parallel()
	s, _ := seeing(t)
	require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
	gi, err := s.CreateInstance(t.Context(), firstGPU, 0, gpu.Placement{Size: 8})
	require.NoError(t, err)
	before := seen(t, s)
	require.Len(t, before, 1)
	change := s.changes(firstGPU)
	change.Lock()
	assert.Equal(t, before, seen(t, s), "a GPU that is being changed is what it was")
	change.Unlock()
	require.NoError(t, s.DestroyInstance(t.Context(), firstGPU, gi))
	change.Lock()
	assert.Nil(t, seen(t, s))
	change.Unlock()
	assert.Len(t, before, 1, "what was returned stays as it was")
}

func TestMIGMode_Read_OneCall(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	g.driver.mu.Lock()
	clear(g.driver.calls)
	g.driver.mu.Unlock()
	mode, err := s.MIGMode(t.Context(), firstGPU)
	require.NoError(t, err)
	assert.Equal(t, gpu.MIGMode{}, mode)
	assert.Equal(t, map[string]int{"nvmlDeviceGetMigMode": 1}, g.driver.calls)
	for _, ask := range []func() error{
		func() error { _, err := s.MIGMode(t.Context(), "GPU-1"); return err },
		func() error { _, err := s.Instances(t.Context(), "GPU-1"); return err },
		func() error { return s.SetMIGMode(t.Context(), "GPU-1", true) },
		func() error { return s.DestroyInstance(t.Context(), "GPU-1", 0) },
	} {
		require.EqualError(t, ask(), "GPU GPU-1 does not answer: not found")
		require.True(t, s.changes("GPU-1").TryLock(), "the change is over")
		s.changes("GPU-1").Unlock()
	}
}

func TestSetMIGMode_EachModeAndFailure_ModeInForce(t *testing.T) {
	t.Parallel()
	on, off := modes{1, 1}, modes{0, 0}
	for name, c := range map[string]struct {
		before, after modes
		change        func(*fakeGPU)
		sets          int
		kind          error
		want          string
	}{
		"on":          {before: off, after: on, sets: 1},
		"on already":  {before: on, after: on},
		"pending off": {before: modes{1, 0}, after: on, sets: 1},
		"GPU in use": {
			before: off, after: off, change: func(g *fakeGPU) { g.activation = nvml.ERROR_IN_USE }, sets: 2, kind: gpu.ErrInUse,
			want: "nvmlDeviceSetMigMode on GPU 0: not in force yet: in use (NVML IN_USE)",
		},
		"a reset is needed after all": {
			before: off, after: off, change: func(g *fakeGPU) { g.activation = nvml.ERROR_RESET_REQUIRED }, sets: 2,
			want: "changing the MIG mode of NVIDIA H100 80GB HBM3 is not supported here: it needs a reset of the GPU",
		},
		"the driver does not do what it says": {
			before: off, after: off, change: func(g *fakeGPU) { g.stubborn = true }, sets: 2, kind: gpu.ErrInUse,
			want: "setting the MIG mode of GPU 0: the driver reported success, but the mode did not change: in use",
		},
		"Ampere": {
			before: off, after: off, change: func(g *fakeGPU) { g.capability = computeCapability{8, 0} },
			want: "changing the MIG mode of NVIDIA H100 80GB HBM3 is not supported here: it needs a reset of the GPU",
		},
		"the driver refuses": {
			before: off, after: off, change: func(g *fakeGPU) { g.answer(nvml.ERROR_NO_PERMISSION, "nvmlDeviceSetMigMode") }, sets: 2, kind: gpu.ErrPermission,
			want: "nvmlDeviceSetMigMode on GPU 0: permission denied (NVML NO_PERMISSION); " +
				"reverting the change: nvmlDeviceSetMigMode on GPU 0: permission denied (NVML NO_PERMISSION)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFakeDriver(1)
			g := d.gpus[0]
			g.modes = c.before
			if c.change != nil {
				c.change(g)
			}
			s := openFake(t, d)
			g.looked(t, s)
			err := s.SetMIGMode(t.Context(), firstGPU, true)
			assert.Equal(t, c.after, g.modes, "and nothing else is pending")
			assert.Equal(t, c.sets, d.count("nvmlDeviceSetMigMode"))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
			if c.kind != nil {
				require.ErrorIs(t, err, c.kind)
				return
			}
			var unsupported *gpu.UnsupportedError
			require.ErrorAs(t, err, &unsupported)
		})
	}
}

// TestSetMIGMode_GPUMoves_HandleRenewed: a change of the mode may change the GPU's minor number, which names its device node.
func TestSetMIGMode_GPUMoves_HandleRenewed(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	g.moves = 3
	require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
	gpus, _, err := s.GPUs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 13, gpus[0].Minor)
	g.answer(nvml.ERROR_UNKNOWN, "nvmlDeviceGetMinorNumber")
	require.EqualError(t, s.SetMIGMode(t.Context(), firstGPU, false), "nvmlDeviceGetMinorNumber on GPU 0: NVML UNKNOWN")
	_, err = s.MIGMode(t.Context(), firstGPU)
	require.ErrorIs(t, err, gpu.ErrNotFound, "nothing works with a number that is not known")
	g.answer(nvml.SUCCESS)
	gpus, _, err = s.GPUs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 16, gpus[0].Minor)
}

// TestSetMIGMode_CallerGivesUp_NothingPending, although the driver completes the change after the caller has gone.
func TestSetMIGMode_CallerGivesUp_NothingPending(t *testing.T) {
	t.Parallel()
	for name, activation := range map[string]nvml.Return{"it comes about": nvml.SUCCESS, "it is left pending": nvml.ERROR_IN_USE} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const symbol = "nvmlDeviceSetMigMode"
			s, g := seeing(t)
			g.activation = activation
			release := g.block(symbol)
			t.Cleanup(release)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() { failed <- s.SetMIGMode(ctx, firstGPU, true) }()
			require.Eventually(t, func() bool { return g.driver.count(symbol) == 1 }, time.Minute, time.Millisecond)
			cancel()
			require.Eventually(t, func() bool { return s.gate.Blocked(library.GPUAt(0)) != nil }, time.Minute, time.Millisecond)
			release()
			require.ErrorIs(t, <-failed, context.Canceled)
			assert.Equal(t, modes{}, g.modes)
			assert.Equal(t, 2, g.driver.count(symbol))
			g.activation = nvml.SUCCESS
			require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true), "the next one is not kept waiting")
		})
	}
}
