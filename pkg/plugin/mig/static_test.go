package mig

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// mediaSlice is the profile of oneSlice with all media engines.
const mediaSlice = 20

func (w *world) static() Static { return Static{Driver: w.open} }

// static is the record's entry for an administrator's instance.
func static(instance gpu.Instance) *checkpoint.MIG {
	c := instance.Compute[0]
	return &checkpoint.MIG{
		Profile: instance.Profile, Placement: instance.Placement, Static: true,
		Identity: gpu.MIGIdentity{GPUInstance: instance.ID, ComputeInstance: c.ID, UUID: c.UUID},
	}
}

// TestThere_AdministratorCreatedAgain_Checked: an instance that is created again gets the ids of the removed one, and is another device
// if anything else differs.
func TestThere_AdministratorCreatedAgain_Checked(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(*world, *checkpoint.MIG){
		"removed":             func(*world, *checkpoint.MIG) {},
		"several in it":       func(w *world, _ *checkpoint.MIG) { w.compute(w.administrator(threeSlices, high, false).ID, 0, 0, 0) },
		"a smaller one in it": func(w *world, _ *checkpoint.MIG) { w.compute(w.administrator(threeSlices, high, false).ID, 1) },
		"another profile in its place": func(w *world, m *checkpoint.MIG) {
			m.Profile = fourSlices
			w.administrator(threeSlices, high, true)
		},
		"elsewhere":       func(w *world, _ *checkpoint.MIG) { w.administrator(threeSlices, low, true) },
		"another profile": func(w *world, _ *checkpoint.MIG) { w.administrator(oneSlice, last, true) },
		"half made":       func(w *world, _ *checkpoint.MIG) { w.administrator(threeSlices, high, false) },
		"elsewhere, with the same UUID": func(w *world, m *checkpoint.MIG) {
			m.Identity.UUID = w.administrator(threeSlices, low, true).Compute[0].UUID
		},
		"another profile of the same UUID": func(w *world, m *checkpoint.MIG) {
			*m = *static(w.administrator(oneSlice, last, true))
			m.Profile = mediaSlice
		},
		"another part of the instance": func(w *world, m *checkpoint.MIG) {
			m.Identity.UUID = w.administrator(threeSlices, high, true).Compute[0].UUID
			m.Identity.ComputeInstance++
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := partitioned(t)
			first := w.administrator(threeSlices, high, true)
			m := static(first)
			require.NoError(t, w.static().There(t.Context(), w.id, m))
			w.removed(first)
			w.changes = nil
			replace(w, m)
			err := w.static().There(t.Context(), w.id, m)
			require.ErrorIs(t, err, gpu.ErrNotFound)
			require.EqualError(t, err, "MIG device "+string(m.Identity.UUID)+" is not on GPU "+string(w.id)+" any more: not found")
			assert.Empty(t, w.changes)
		})
	}
}

// TestThere_RecreatedWithSameUUID_Found: it is the promised device, and nothing distinguishes it from the earlier one.
func TestThere_RecreatedWithSameUUID_Found(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	first := w.administrator(threeSlices, high, true)
	m := static(first)
	w.removed(first)
	w.administrator(threeSlices, high, true)
	require.NoError(t, w.static().There(t.Context(), w.id, m))
}

func TestThere_DriverFails_NotReportedGone(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	m := static(w.administrator(threeSlices, high, true))
	err := w.static().There(t.Context(), "GPU-absent", m)
	require.ErrorIs(t, err, gpu.ErrTimeout)
	require.NotErrorIs(t, err, gpu.ErrNotFound)
	mend := w.fail("nvmlDeviceGetGpuInstanceById", model.Unknown)
	require.ErrorContains(t, w.static().There(t.Context(), w.id, m), "finding MIG device "+string(m.Identity.UUID)+" on GPU "+string(w.id)+": ")
	mend()
	w.absent = true
	require.ErrorIs(t, w.static().There(t.Context(), w.id, m), gpu.ErrDriverNotLoaded)
}

// TestThere_OtherInstances_CostTheSame.
func TestThere_OtherInstances_CostTheSame(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	m := static(w.administrator(oneSlice, last, true))
	for others := range 7 {
		before := w.calls()
		require.NoError(t, w.static().There(t.Context(), w.id, m))
		assert.EqualValues(t, 6, w.calls()-before, "with %d others", others)
		if others < 6 {
			w.administrator(oneSlice, gpu.Placement{Start: others, Size: 1}, true)
		}
	}
}
