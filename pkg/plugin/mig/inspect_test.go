package mig

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// requireUninspected requires the refusal of a claim whose GPU is not known in its present mode.
func requireUninspected(t *testing.T, w *world, err error, mode, cause string) {
	t.Helper()
	refusal, ok := errors.AsType[*claim.Refusal](err)
	require.True(t, ok, "%v", err)
	assert.True(t, refusal.Transient)
	require.EqualError(t, err, "GPU "+string(w.id)+" could not be inspected since its MIG mode was turned "+mode+
		", and its device node may have another number now: "+cause+"; check on the node that nvidia-smi -L answers and lists it (will be retried)")
}

// TestMeet_InspectionFails_Refused until an inspection succeeds, although the mode is right by then: the claim would get the former
// number of the device node.
func TestMeet_InspectionFails_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	broken := errors.New("input/output error")
	w.inspect, w.inspections = func(context.Context) error { return broken }, 0
	for range 3 {
		err := w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode))
		require.ErrorIs(t, err, broken)
		requireUninspected(t, w, err, "on", "input/output error")
	}
	assert.Equal(t, []string{"set mode true"}, w.changes, "once")
	assert.Equal(t, 3, w.inspections)

	// A claim that needs the mode that was before must not change it back: the change would go unnoticed.
	requireUninspected(t, w, w.mode().Ensure(t.Context(), w.needs(claim.PreconditionNoMIGMode)), "on", "input/output error")
	assert.Equal(t, []string{"set mode true"}, w.changes)

	w.inspect = nil
	require.NoError(t, w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode)))
	require.NoError(t, w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode)))
	assert.Equal(t, 5, w.inspections, "none where it is known")
}

// TestMeet_ModeChangedByOthers_Inspected: another process, an administrator, or a process that exited after the change.
func TestMeet_ModeChangedByOthers_Inspected(t *testing.T) {
	t.Parallel()
	for kind, on := range map[string]bool{claim.PreconditionMIGMode: true, claim.PreconditionNoMIGMode: false} {
		w := newWorld(t, "h100-80")
		if !on {
			w = partitioned(t)
			require.NoError(t, w.refresh(t.Context()))
		}
		require.NoError(t, w.MIGDriver.SetMIGMode(t.Context(), w.id, on))
		w.inspections = 0
		require.NoError(t, w.mode().Ensure(t.Context(), w.needs(kind)))
		assert.Equal(t, 1, w.inspections)
		assert.Equal(t, on, w.shown.Enabled)
		assert.Empty(t, w.changes)
	}
}

// TestMeet_InspectionShowsNothingNew_Refused: an inspection that reads nothing does not count, and the mode of a GPU that it leaves out
// is not known.
func TestMeet_InspectionShowsNothingNew_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	mode := w.mode()
	mode.Changed = func(context.Context) error { return nil }
	const cause = "the GPU does not answer, or its mode has changed again: not found"
	requireUninspected(t, w, mode.Ensure(t.Context(), w.needs(claim.PreconditionMIGMode)), "on", cause)
	require.NoError(t, w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode)))
	w.unseen = true
	requireUninspected(t, w, w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode)), "on", cause)
}

// TestMeet_CallerGone_InspectionGoesOn: it uses its own context, with a deadline.
func TestMeet_CallerGone_InspectionGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	ctx, cancel := context.WithCancel(t.Context())
	w.inspect = func(inspecting context.Context) error {
		cancel()
		deadline, bounded := inspecting.Deadline()
		assert.True(t, bounded)
		assert.LessOrEqual(t, time.Until(deadline), changedTime)
		return inspecting.Err()
	}
	require.NoError(t, w.mode().Ensure(ctx, w.needs(claim.PreconditionMIGMode)))
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	assert.True(t, w.shown.Enabled)
}

// TestMeet_ChangeFails_Inspected: a GPU whose mode was changed and changed back gets another minor number too. A refusal has changed
// nothing.
func TestMeet_ChangeFails_Inspected(t *testing.T) {
	t.Parallel()
	for ret, inspections := range map[model.Return]int{model.Unknown: 1, model.Timeout: 1, model.InUse: 0} {
		w := newWorld(t, "h100-80")
		w.inspections = 0
		w.fail("nvmlDeviceSetMigMode", ret)
		err := w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode))
		require.ErrorContains(t, err, "turning on the MIG mode")
		assert.Equal(t, inspections, w.inspections, "%v", ret)
		_, refusal := errors.AsType[*claim.Refusal](err)
		assert.False(t, refusal)
	}
	w := newWorld(t, "h100-80")
	w.absent = true
	require.ErrorIs(t, w.mode().Ensure(t.Context(), w.needs(claim.PreconditionMIGMode)), gpu.ErrDriverNotLoaded)
}
