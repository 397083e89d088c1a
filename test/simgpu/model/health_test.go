package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watching returns a set with all types that the GPU supports.
func watching(t *testing.T, session *Session, h Handle) SetID {
	t.Helper()
	set, err := session.NewEventSet()
	require.NoError(t, err)
	types, err := session.SupportedEvents(h)
	require.NoError(t, err)
	require.NoError(t, session.Watch(h, types, set))
	return set
}

func TestChangeHealth_Fields_AnswerIt(t *testing.T) {
	flags := map[uint32]uint64{}
	read := func(board string, change func(*Health)) map[uint32]uint64 {
		node, session, _ := clocked(t, board)
		require.NoError(t, node.ChangeHealth(0, change))
		r := read(t, session)
		answers := map[uint32]uint64{}
		for _, id := range []uint32{31, 93, 144, 145, 230} {
			if value, err := r.Field(id, 0); err == nil && value.Value != 0 {
				answers[id] = value.Value
			}
		}
		return answers
	}
	for _, test := range []struct {
		board  string
		change func(*Health)
		want   map[uint32]uint64
	}{
		{"h100-80", func(*Health) {}, flags},
		{"h100-80", func(h *Health) { h.Action = 2 }, map[uint32]uint64{230: 2}},
		{"h100-80", func(h *Health) { h.RowRemapPending = true }, map[uint32]uint64{144: 1}},
		{"a30", func(h *Health) { h.RowRemapFailure = true }, map[uint32]uint64{145: 1}},
		{"t4", func(h *Health) { h.RetirementPending = true }, map[uint32]uint64{31: 1, 93: 1}},
	} {
		assert.Equal(t, test.want, read(test.board, test.change), test.board)
	}
}

func TestChangeHealth_BoardOrDriverWithout_Refused(t *testing.T) {
	spec := Spec{Name: "node-a", Driver: "560.35.03", Boards: []string{"t4", "l40s", "h100-80"}}
	node, err := New(spec)
	require.NoError(t, err)
	for want, test := range map[string]struct {
		gpu    int
		change func(*Health)
	}{
		"from branch 565, this one is 560": {2, func(h *Health) { h.Action = 1 }},
		"Tesla T4 retires pages":           {0, func(h *Health) { h.RowRemapPending = true }},
		"NVIDIA L40S remaps rows":          {1, func(h *Health) { h.RetirementPending = true }},
		"NVIDIA L40S has no NVSwitch":      {1, func(h *Health) { h.Fabric = FabricInProgress }},
		"must be between 0 and 3":          {2, func(h *Health) { h.Fabric = 4 }},
		"Invalid Argument":                 {3, func(*Health) {}},
	} {
		before := node.GPUs()
		require.ErrorContains(t, node.ChangeHealth(test.gpu, test.change), want)
		assert.Equal(t, before, node.GPUs())
	}
}

func TestEvents_OfHealth_RaisedByNewDrivers(t *testing.T) {
	node := newNode(t, "h100-80", 2)
	session := open(t, node)
	set := watching(t, session, handleOf(1))
	for range 2 { // the second does not change it
		require.NoError(t, node.ChangeHealth(1, func(h *Health) { h.Action = 1 }))
	}
	_, err := node.LoseGPU(1, time.Time{})
	require.NoError(t, err)
	for _, want := range []EventType{EventRecoveryAction, EventGPUUnavailable} {
		event, err := session.Wait(t.Context(), set, 0)
		require.NoError(t, err)
		assert.Equal(t, Event{GPU: handleOf(1), Type: want, GPUInstance: NoInstance}, event)
	}
	_, err = session.Wait(t.Context(), set, 0)
	require.ErrorIs(t, err, GPUIsLost)
}

// One type that the driver does not know registers none.
func TestWatch_OneTypeUnsupported_NoneRegistered(t *testing.T) {
	spec := Uniform("node-a", "h100-80", 1)
	spec.Driver = "550.54.15"
	node, err := New(spec)
	require.NoError(t, err)
	session := open(t, node)
	types, err := session.SupportedEvents(handleOf(0))
	require.NoError(t, err)
	assert.Equal(t, EventSingleBitECC|EventDoubleBitECC|EventXID, types)
	set, err := session.NewEventSet()
	require.NoError(t, err)
	require.ErrorIs(t, session.Watch(handleOf(0), EventXID|EventRecoveryAction, set), NotSupported)
	require.NoError(t, node.PostXID(0, 79))
	_, err = session.Wait(t.Context(), set, 0)
	require.ErrorIs(t, err, Timeout)
}

func TestRemoveGPU_NewSessions_DoNotListIt(t *testing.T) {
	node := newNode(t, "h100-80", 3)
	before := open(t, node)
	uuids := []string{node.Identities()[0].UUID, node.Identities()[1].UUID, node.Identities()[2].UUID}
	_, err := node.RemoveGPU(1, time.Time{})
	require.NoError(t, err)
	listed := func(s *Session) (list []string) {
		count, err := s.Count()
		require.NoError(t, err)
		for i := range count {
			h, err := s.ByIndex(i)
			require.NoError(t, err)
			_, id, err := s.Device(h)
			require.NoError(t, err)
			list = append(list, id.UUID)
		}
		return list
	}
	assert.Equal(t, []string{uuids[0], uuids[2]}, listed(open(t, node)))
	_, err = open(t, node).ByUUID(uuids[1])
	require.ErrorIs(t, err, NotFound)
	assert.Len(t, listed(before), 3)
	require.ErrorIs(t, node.Faults.Pass(t.Context(), "nvmlDeviceGetName", 1), GPUIsLost)
	assert.True(t, node.GPUs()[1].Unlisted)

	require.ErrorIs(t, node.ResetDetachedGPU(1), InUse, "the first session attached it")
	before.Close()
	require.NoError(t, node.ResetDetachedGPU(1))
	assert.Equal(t, uuids, listed(open(t, node)))
}

func TestReset_Sessions_RefusedWhileAttached(t *testing.T) {
	node := newNode(t, "h100-80", 2)
	own, err := node.Open("", []int{0, 1})
	require.NoError(t, err)
	h, err := own.ByIndex(0)
	require.NoError(t, err)
	require.ErrorIs(t, own.Reset(h, false), NoPermission)
	require.NoError(t, own.Reset(h, true), "by the only process")

	other, err := node.Open("", []int{0})
	require.NoError(t, err)
	require.ErrorIs(t, own.Reset(h, true), InUse, "it has used no handle yet")
	require.NoError(t, own.Reset(handleOf(1), true), "the device node of this GPU was not there when the session was opened")
	require.ErrorIs(t, node.ResetDetachedGPU(0), InUse)
	other.Close()
	require.NoError(t, own.Reset(h, true))

	require.NoError(t, own.SetPersistence(h, true, true))
	require.ErrorIs(t, own.Reset(h, true), InUse)
	require.NoError(t, own.SetPersistence(h, false, true))
	release, err := node.Hold(node.Identities()[0].UUID)
	require.NoError(t, err)
	require.ErrorIs(t, own.Reset(h, true), InUse)
	release()
	require.NoError(t, own.Reset(h, true))

	node.Unload()
	require.NoError(t, node.Load(DefaultDriver))
	require.NoError(t, node.ResetDetachedGPU(0), "sessions end with their driver")
}

func TestReset_Problems_EndedIfRepaired(t *testing.T) {
	node := newNode(t, "h100-80", 2)
	require.NoError(t, node.ChangeHealth(0, func(h *Health) {
		*h = Health{Action: 1, RowRemapPending: true, RowRemapFailure: true, Fabric: FabricInProgress}
	}))
	_, err := node.LoseGPU(0, time.Time{})
	require.NoError(t, err)
	stays := []Fault{
		{Effect: EffectError, GPU: 1, Return: GPUIsLost},
		{Effect: EffectError, GPU: 0, Return: Unknown, Call: "nvmlDeviceGetName"},
		{Effect: EffectHang, GPU: AnyGPU},
	}
	for _, fault := range append(stays, Fault{Effect: EffectHang, GPU: 0}) {
		_, err := node.Faults.Add(fault)
		require.NoError(t, err)
	}
	require.NoError(t, node.ResetDetachedGPU(0))
	assert.Equal(t, Health{RowRemapFailure: true, Fabric: FabricInProgress}, node.GPUs()[0].Health)
	var left []Fault
	for _, f := range node.Faults.List() {
		f.ID = 0
		left = append(left, f)
	}
	assert.Equal(t, stays, left)

	node.Heal()
	assert.Empty(t, node.Faults.List())
	assert.Equal(t, Health{Fabric: FabricCompleted}, node.GPUs()[0].Health)
}

func TestLoad_Health_AsAfterReset(t *testing.T) {
	node := newNode(t, "t4", 1)
	require.NoError(t, node.ChangeHealth(0, func(h *Health) { h.Action, h.RetirementPending = 2, true }))
	node.Unload()
	require.NoError(t, node.Load(DefaultDriver))
	assert.Equal(t, Health{}, node.GPUs()[0].Health)
}
