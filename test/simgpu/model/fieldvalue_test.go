package model

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func returnOf(err error) Return {
	code := Success
	if err != nil && !errors.As(err, &code) {
		return Unknown
	}
	return code
}

func TestField_Boards_SupportedOnes(t *testing.T) {
	no, ok := NotSupported, Success
	boards := []string{"t4", "a30", "a100-80", "l40s", "h100-80", "b200-180"}
	tests := map[uint32][]Return{
		3: {ok, ok, ok, ok, ok, ok}, 7: {no, no, no, no, no, no}, 29: {ok, no, no, no, no, no}, 38: {no, ok, ok, no, no, no},
		74: {ok, ok, ok, ok, ok, ok}, 82: {no, ok, ok, no, ok, ok}, 83: {ok, ok, ok, ok, ok, ok}, 138: {no, ok, ok, no, ok, no},
		142: {no, ok, ok, ok, ok, ok}, 161: {no, no, no, no, ok, no}, 185: {no, no, no, ok, ok, ok}, 186: {ok, ok, ok, ok, ok, ok},
		197: {no, no, no, no, ok, ok}, 202: {no, no, no, no, no, ok}, 230: {ok, ok, ok, ok, ok, ok}, 269: {ok, ok, ok, ok, ok, ok},
		301: {2, 2, 2, 2, 2, 2}, 308: {2, 2, 2, 2, 2, 2},
	}
	for i, board := range boards {
		_, session, _ := clocked(t, board)
		r := read(t, session)
		for id, want := range tests {
			_, err := r.Field(id, AllLinks)
			assert.Equal(t, want[i], returnOf(err), "field %d of %s", id, board)
		}
	}
}

func TestField_OldDriver_LaterFieldsInvalid(t *testing.T) {
	spec := Uniform("node-a", "a100-80", 1)
	spec.Driver = "450.80.02"
	_, session, _ := clockedSpec(t, spec)
	r := read(t, session)
	for id, want := range map[uint32]Return{83: Success, 142: Success, 161: InvalidArgument, 186: InvalidArgument, 230: InvalidArgument} {
		_, err := r.Field(id, 0)
		assert.Equal(t, want, returnOf(err), "field %d", id)
	}
}

// The values of the links add up to the value of all links.
func TestField_Links_SumOfScopes(t *testing.T) {
	node, session, c := clocked(t, "h100-80")
	require.NoError(t, node.SetLoad(node.Identities()[0].UUID, Script{Steps: []Step{
		{Values: map[Quantity]float64{QuantityNVLinkTx: 1000, QuantityNVLinkReplays: 20}},
	}}))
	c.pass(time.Second)
	r := read(t, session)
	for id, want := range map[uint32]uint64{138: 1000 * 1024, 161: 20} {
		all, err := r.Field(id, AllLinks)
		require.NoError(t, err)
		assert.Equal(t, want, all.Value)
		var sum uint64
		for link := range uint32(18) {
			one, err := r.Field(id, link)
			require.NoError(t, err)
			sum += one.Value
		}
		assert.Equal(t, want, sum)
		_, err = r.Field(id, 18)
		assert.Equal(t, InvalidArgument, returnOf(err))
	}
}

// Rows are not counted beside GPU instances. Calls for values that NVML only measures for whole GPUs fail in MIG mode.
func TestField_MIG_RowsNotSupported(t *testing.T) {
	_, session, c := clocked(t, "h100-80")
	devices, _ := partitioned(t, session)
	working(t, session, devices[0], 101, 50)
	c.pass(time.Second)
	r := read(t, session)
	_, err := r.Field(142, 0)
	assert.Equal(t, NotSupported, returnOf(err))
	_, err = r.Field(186, 0)
	require.NoError(t, err)
	_, err = session.Read(devices[0])
	require.ErrorIs(t, err, NotSupported)
	_, err = session.ProcessUtilization(handleOf(0), 0)
	require.ErrorIs(t, err, NotSupported)
	_, err = session.ProcessUtilization(devices[0], 0)
	require.ErrorIs(t, err, NotSupported)
}

func TestPostInstanceXID_Instance_InEvent(t *testing.T) {
	node, session, _ := clocked(t, "h100-80")
	_, instances := partitioned(t, session)
	described, err := session.GPUInstance(instances[1])
	require.NoError(t, err)
	set, err := session.NewEventSet()
	require.NoError(t, err)
	require.NoError(t, session.Watch(handleOf(0), EventXID, set))
	require.NoError(t, node.PostInstanceXID(0, described.ID, 45))
	require.NoError(t, node.PostXID(0, 79))
	event, err := session.Wait(t.Context(), set, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, Event{GPU: handleOf(0), Type: EventXID, Data: 45, GPUInstance: described.ID}, event)
	event, err = session.Wait(t.Context(), set, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, uint32(NoInstance), event.GPUInstance)
	require.ErrorIs(t, node.PostInstanceXID(0, 77, 45), NotFound)
}
