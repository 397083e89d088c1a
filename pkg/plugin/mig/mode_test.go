package mig

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

func (w *world) needs(kind string) claim.Precondition {
	return claim.Precondition{Kind: kind, Target: w.id}
}

func TestMode_OtherNeeded_Changed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	for _, c := range []struct {
		kind    string
		enabled bool
		changes []string
	}{
		{claim.PreconditionNoMIGMode, false, nil},
		{claim.PreconditionMIGMode, true, []string{"set mode true"}},
		{claim.PreconditionMIGMode, true, nil},
		{claim.PreconditionNoMIGMode, false, []string{"set mode false"}},
		{claim.PreconditionNoMIGMode, false, nil},
	} {
		w.changes, w.inspections = nil, 0
		require.NoError(t, w.mode().Ensure(t.Context(), w.needs(c.kind)))
		assert.Equal(t, c.changes, w.changes)
		assert.Equal(t, len(c.changes), w.inspections, "once, after the change")
		mode, err := w.MIGMode(t.Context(), w.id)
		require.NoError(t, err)
		assert.Equal(t, gpu.MIGMode{Enabled: c.enabled, Pending: c.enabled}, mode)
	}
}

// TestMode_ResetNeeded_Refused: an administrator has to reset the GPU, and no change is left pending for the next reset.
func TestMode_ResetNeeded_Refused(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct{ word, flag string }{claim.PreconditionMIGMode: {"on", "1"}, claim.PreconditionNoMIGMode: {"off", "0"}} {
		spec := model.Uniform("n0", "a100-80", 1)
		if kind == claim.PreconditionNoMIGMode {
			spec.MIG = []int{0}
		}
		w := newWorldOf(t, spec)
		before, err := w.MIGMode(t.Context(), w.id)
		require.NoError(t, err)
		require.True(t, before.NeedsReset)
		err = w.mode().Ensure(t.Context(), w.needs(kind))
		var unsupported *gpu.UnsupportedError
		require.ErrorAs(t, err, &unsupported)
		id := string(w.id)
		require.EqualError(t, err, "turning "+c.word+" the MIG mode of GPU "+id+", which changes only with a reset, is not supported here: it needs "+
			"an administrator to drain the node and to run nvidia-smi -i "+id+" -mig "+c.flag+" and nvidia-smi --gpu-reset -i "+id)
		w.untouched()
		after, err := w.MIGMode(t.Context(), w.id)
		require.NoError(t, err)
		assert.Equal(t, before, after)
	}
}

func TestMode_GPUInUse_Kept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	release, err := w.node.Hold(string(w.id))
	require.NoError(t, err)
	err = w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode))
	require.ErrorIs(t, err, gpu.ErrInUse)
	require.ErrorContains(t, err, "turning on the MIG mode: something on the node uses GPU "+string(w.id)+": ")
	require.ErrorContains(t, err, "; stop the process (nvidia-smi and fuser -v /dev/nvidia* show it), or remove the GPU instance (nvidia-smi mig -lgi shows it)")
	mode, err := w.MIGMode(t.Context(), w.id)
	require.NoError(t, err)
	assert.Equal(t, gpu.MIGMode{}, mode, "nothing is pending")
	release()
	require.NoError(t, w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode)))

	theirs := w.administrator(oneSlice, last, true)
	require.ErrorIs(t, w.mode().Ensure(t.Context(), w.needs(claim.PreconditionNoMIGMode)), gpu.ErrInUse)
	assert.Equal(t, []gpu.Instance{theirs}, w.there(), "an instance is never removed for it")
	mode, err = w.MIGMode(t.Context(), w.id)
	require.NoError(t, err)
	assert.Equal(t, gpu.MIGMode{Enabled: true, Pending: true}, mode)
}

// TestMode_UnknownInstances_Kept: an administrator's that no inspection has shown yet.
func TestMode_UnknownInstances_Kept(t *testing.T) {
	t.Parallel()
	for _, compute := range []bool{true, false} {
		w := partitioned(t)
		theirs := w.administrator(threeSlices, high, compute)
		w.careless = true
		err := w.mode().Ensure(t.Context(), w.needs(claim.PreconditionNoMIGMode))
		require.ErrorIs(t, err, gpu.ErrInUse)
		require.ErrorContains(t, err, "something on the node uses GPU "+string(w.id)+": GPU instance 2 at memory slices 4-7 would go: in use; ")
		w.untouched(theirs)
		w.fail("nvmlDeviceGetGpuInstances", model.Unknown)
		err = w.mode().Ensure(t.Context(), w.needs(claim.PreconditionNoMIGMode))
		require.ErrorContains(t, err, "turning off the MIG mode of GPU "+string(w.id)+": inspecting its instances: ")
		w.node.Faults.Clear()
		w.untouched(theirs)
	}
}

func TestMode_Unreadable_Error(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	w.fail("nvmlDeviceGetMigMode", model.Unknown)
	err := w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode))
	require.ErrorContains(t, err, "reading the MIG mode of GPU "+string(w.id)+": ")
	assert.Empty(t, w.changes)
	w.node.Faults.Clear()
	w.fail("nvmlDeviceSetMigMode", model.Unknown)
	err = w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode))
	require.ErrorContains(t, err, "turning on the MIG mode of GPU "+string(w.id)+": ")
}
