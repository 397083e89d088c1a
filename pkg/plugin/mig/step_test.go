package mig

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

var (
	low  = gpu.Placement{Start: 0, Size: 4}
	high = gpu.Placement{Start: 4, Size: 4}
	last = gpu.Placement{Start: 6, Size: 1}
)

func TestStep_DoAndUndo_NothingLeft(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	s := w.deviceStep(threeSlices, high)
	require.NoError(t, w.step().Check(t.Context(), s))
	w.untouched()

	s = w.made(threeSlices, high)
	there := w.there()
	require.Len(t, there, 1)
	require.Len(t, there[0].Compute, 1)
	id, err := w.step().Identify(s.Made)
	require.NoError(t, err)
	assert.Equal(t, gpu.MIGIdentity{GPUInstance: there[0].ID, ComputeInstance: there[0].Compute[0].ID, UUID: there[0].Compute[0].UUID}, id)
	assert.Equal(t, 3, there[0].Compute[0].Slices, "one compute instance fills it")
	require.NoError(t, w.step().Verify(t.Context(), s))
	w.untouched(there...)

	require.NoError(t, w.step().Undo(t.Context(), s))
	assert.Equal(t, []string{"destroy compute", "destroy"}, w.changes)
	assert.Empty(t, w.there())
	require.ErrorIs(t, w.step().Verify(t.Context(), s), gpu.ErrNotFound)
	require.EqualError(t, w.step().Verify(t.Context(), s), "MIG device "+string(id.UUID)+" is not on GPU "+string(w.id)+" any more: not found")
	w.changes = nil
	require.NoError(t, w.step().Undo(t.Context(), s), "nothing to take back is no error")
	w.untouched()
}

// TestDo_OtherDevices_CostTheSame: Undo and Verify make the same number of driver calls however many other devices there are.
func TestDo_OtherDevices_CostTheSame(t *testing.T) {
	t.Parallel()
	counted := func(others int) (undo, verify uint64) {
		w := partitioned(t)
		for i := range others {
			w.administrator(oneSlice, gpu.Placement{Start: i, Size: 1}, true)
		}
		s := w.made(oneSlice, last)
		calls := func(f func() error) uint64 {
			before := w.calls()
			require.NoError(t, f())
			return w.calls() - before
		}
		verify = calls(func() error { return w.step().Verify(t.Context(), s) })
		return calls(func() error { return w.step().Undo(t.Context(), s) }), verify
	}
	undo, verify := counted(0)
	assert.EqualValues(t, 6, verify)
	assert.EqualValues(t, 12, undo)
	undo, verify = counted(6)
	assert.EqualValues(t, 6, verify)
	assert.EqualValues(t, 12, undo)
}

func TestCheck_PlacementTaken_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		profile int
		at      gpu.Placement
		compute bool
		want    string
	}{
		"the same":      {threeSlices, high, true, "is at memory slices 4-7 of GPU "},
		"a part of it":  {oneSlice, last, true, "is at memory slice 6 of GPU "},
		"one half made": {oneSlice, last, false, "is at memory slice 6 of GPU "},
		"next to it":    {threeSlices, low, true, ""},
		"just before":   {oneSlice, gpu.Placement{Start: 3, Size: 1}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := partitioned(t)
			theirs := w.administrator(c.profile, c.at, c.compute)
			err := w.step().Check(t.Context(), w.deviceStep(threeSlices, high))
			w.untouched(theirs)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, gpu.ErrInUse)
			require.ErrorContains(t, err, ", which belongs to no claim, "+c.want+string(w.id)+": in use; the administrator can remove it "+
				"with nvidia-smi mig -dci and -dgi, or keep it: then it is advertised as a device of its own")
		})
	}
}

// TestUndo_EveryPartialState_NothingLeft: in every state of the driver and of the record, nothing of the MIG device remains, and its
// neighbors stay.
func TestUndo_EveryPartialState_NothingLeft(t *testing.T) {
	t.Parallel()
	for there, make := range map[string]func(*world) checkpoint.Step{
		"nothing": func(w *world) checkpoint.Step {
			s := w.made(threeSlices, high)
			w.removed(w.there()[0])
			return s
		},
		"an instance": func(w *world) checkpoint.Step {
			gi := w.administrator(threeSlices, high, false).ID
			s := w.deviceStep(threeSlices, high)
			s.Made = encode(made{MIGIdentity: gpu.MIGIdentity{GPUInstance: gi}})
			return s
		},
		"an instance that lost its compute instance": func(w *world) checkpoint.Step {
			s := w.made(threeSlices, high)
			i := w.there()[0]
			require.NoError(w.t, w.MIGDriver.DestroyComputeInstance(w.t.Context(), w.id, i.ID, i.Compute[0].ID))
			return s
		},
		"everything": func(w *world) checkpoint.Step { return w.made(threeSlices, high) },
	} {
		for known, omit := range map[string]func(*checkpoint.Step){
			"all":     func(*checkpoint.Step) {},
			"nothing": func(s *checkpoint.Step) { s.Made = nil },
			"the id": func(s *checkpoint.Step) {
				id, _ := Step{}.Identify(s.Made)
				s.Made = encode(made{MIGIdentity: gpu.MIGIdentity{GPUInstance: id.GPUInstance}})
			},
		} {
			t.Run(there+" is there, known is "+known, func(t *testing.T) {
				t.Parallel()
				w := partitioned(t)
				s := make(w)
				omit(&s)
				other := w.administrator(oneSlice, gpu.Placement{Start: 2, Size: 1}, true)
				require.NoError(t, w.step().Undo(t.Context(), s))
				assert.Equal(t, []gpu.Instance{other}, w.there())
			})
		}
	}
}

// TestUndo_OtherOwners_Kept: ids and placements are used again, by others too.
func TestUndo_OtherOwners_Kept(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(*world) gpu.Instance{
		"several compute instances": func(w *world) gpu.Instance {
			gi := w.administrator(threeSlices, low, false).ID
			return w.compute(gi, 0, 0, 0)
		},
		"a smaller compute instance of the same name": func(w *world) gpu.Instance {
			gi := w.administrator(threeSlices, low, false).ID
			return w.compute(gi, 1)
		},
		"the same profile elsewhere":            func(w *world) gpu.Instance { return w.administrator(threeSlices, high, false) },
		"another profile at the same placement": func(w *world) gpu.Instance { return w.administrator(fourSlices, low, false) },
		"a smaller one inside":                  func(w *world) gpu.Instance { return w.administrator(oneSlice, gpu.Placement{Start: 3, Size: 1}, false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := partitioned(t)
			ours := w.made(threeSlices, low)
			w.removed(w.there()[0])
			theirs := replace(w)
			require.ErrorIs(t, w.step().Verify(t.Context(), ours), gpu.ErrNotFound)
			require.NoError(t, w.step().Undo(t.Context(), ours))
			w.untouched(theirs)
		})
	}
}

func TestDo_Fails_ReturnsWhatItCreated(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	mend := w.fail("nvmlGpuInstanceCreateComputeInstance", model.Unknown)
	s := w.deviceStep(threeSlices, high)
	raw, err := w.step().Do(t.Context(), s)
	require.ErrorContains(t, err, "creating the compute instance of GPU instance 2 (3g.40gb): ")
	mend()
	there := w.there()
	require.Len(t, there, 1)
	id, err := w.step().Identify(raw)
	require.NoError(t, err)
	assert.Equal(t, gpu.MIGIdentity{GPUInstance: there[0].ID}, id)
	s.Made = raw
	require.NoError(t, w.step().Undo(t.Context(), s))
	assert.Empty(t, w.there())

	for _, answer := range []model.Return{model.Unknown, model.InUse, model.NotReady} {
		mend = w.fail("nvmlGpuInstanceGetInfo", answer)
		s.Made, err = w.step().Do(t.Context(), s)
		require.ErrorContains(t, err, "creating GPU instance 3g.40gb at memory slices 4-7: ")
		mend()
		require.Len(t, w.there(), 1, "it was made, and the driver did not return its id")
		assert.Empty(t, s.Made)
		require.NoError(t, w.step().Undo(t.Context(), s))
		require.Empty(t, w.there(), "%v", answer)
	}
}

// TestDo_PlacementTakenAfterCheck_Kept, although it equals the device that Do was to make.
func TestDo_PlacementTakenAfterCheck_Kept(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	s := w.deviceStep(oneSlice, last)
	require.NoError(t, w.step().Check(t.Context(), s))
	theirs := w.administrator(oneSlice, last, true)
	var err error
	s.Made, err = w.step().Do(t.Context(), s)
	require.ErrorIs(t, err, gpu.ErrInUse)
	require.ErrorContains(t, err, "creating GPU instance 1g.10gb at memory slice 6: ")
	w.changes = nil
	require.NoError(t, w.step().Undo(t.Context(), s))
	w.untouched(theirs)
}

func TestUndo_DeviceInUse_Error(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	s := w.made(oneSlice, last)
	there := w.there()
	release, err := w.node.Hold(string(there[0].Compute[0].UUID))
	require.NoError(t, err)
	err = w.step().Undo(t.Context(), s)
	require.ErrorIs(t, err, gpu.ErrInUse)
	require.ErrorContains(t, err, "removing MIG device "+string(there[0].Compute[0].UUID)+": ")
	assert.Equal(t, there, w.there(), "all of it is still there")
	release()
	require.NoError(t, w.step().Undo(t.Context(), s))
	assert.Empty(t, w.there())
}

// TestUndo_DriverReportsSuccess_Verified: Undo succeeds when the instance is gone, whatever the driver reports.
func TestUndo_DriverReportsSuccess_Verified(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	s := w.made(oneSlice, last)
	w.lies = true
	err := w.step().Undo(t.Context(), s)
	require.ErrorIs(t, err, gpu.ErrInUse)
	require.ErrorContains(t, err, "(1g.10gb): the driver says it is done, and it is still there: in use")
	w.lies = false
	require.NoError(t, w.step().Undo(t.Context(), s))
	assert.Empty(t, w.there())
}

// TestVerify_GPUDoesNotAnswer_NotReportedGone: making them again would take them from the programs that run on them.
func TestVerify_GPUDoesNotAnswer_NotReportedGone(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	s := w.made(oneSlice, last)
	s.Target = "GPU-absent"
	err := w.step().Verify(t.Context(), s)
	require.ErrorIs(t, err, gpu.ErrTimeout)
	require.NotErrorIs(t, err, gpu.ErrNotFound)
	require.Error(t, w.step().Undo(t.Context(), s), "and they are not taken for removed")
}

func TestStep_NoDriver_Error(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	s := w.made(oneSlice, last)
	w.absent = true
	_, err := w.step().Do(t.Context(), s)
	for what, err := range map[string]error{
		"Check": w.step().Check(t.Context(), s), "Do": err, "Undo": w.step().Undo(t.Context(), s), "Verify": w.step().Verify(t.Context(), s),
		"Ensure": w.mode().Ensure(t.Context(), claim.Precondition{Kind: claim.PreconditionMIGMode, Target: w.id}),
	} {
		require.ErrorIs(t, err, gpu.ErrDriverNotLoaded, what)
	}
	w.untouched(w.there()...)
}

func TestStep_Unreadable_NothingChanged(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	s := w.made(oneSlice, last)
	there := w.there()
	s.Made = json.RawMessage(`[]`)
	require.ErrorContains(t, w.step().Undo(t.Context(), s), "reading the created instances: ")
	require.ErrorContains(t, w.step().Verify(t.Context(), s), "reading the created instances: ")
	s.Args = json.RawMessage(`[]`)
	require.ErrorContains(t, w.step().Undo(t.Context(), s), "reading the arguments of step mig: ")
	_, err := w.step().Do(t.Context(), s)
	require.ErrorContains(t, err, "reading the arguments of step mig: ")
	w.untouched(there...)
}

func TestOwned_RecordsOfThisBoot_InstancesAndPlacements(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	ours := w.made(threeSlices, high)
	instance := w.there()[0]
	about := w.deviceStep(oneSlice, gpu.Placement{Start: 0, Size: 1})
	records := []*checkpoint.Record{
		{BootID: "now", State: checkpoint.Done, Steps: []checkpoint.Step{{Kind: "other", Target: w.id}, ours}},
		{BootID: "now", Steps: []checkpoint.Step{about}},
		{BootID: "now", Steps: []checkpoint.Step{{Kind: claim.StepMIG, Target: w.id, Args: json.RawMessage(`[]`)}}},
		{BootID: "before", Steps: []checkpoint.Step{w.deviceStep(oneSlice, gpu.Placement{Start: 1, Size: 1})}},
	}
	owned := Owned(records, "now", "")
	one := func(start int) *gpu.Instance {
		return &gpu.Instance{ID: 9, Profile: oneSlice, Placement: gpu.Placement{Start: start, Size: 1}}
	}
	another := instance
	another.Compute = []gpu.ComputeInstance{{UUID: "MIG-other"}}
	assert.True(t, owned(w.id, &instance), "what was made")
	assert.True(t, owned(w.id, one(0)), "what is about to be made")
	assert.False(t, owned(w.id, one(1)), "nothing outlives a boot")
	assert.False(t, owned(w.id, one(2)), "no record names it")
	assert.False(t, owned(w.id, &another), "it came in the place of ours")
	assert.False(t, owned("GPU-other", &instance))
	assert.False(t, Owned(nil, "now", "")(w.id, &instance))
}
