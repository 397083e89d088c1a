package abi

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/wire"
)

// The event of an XID that belongs to a GPU instance names the instance.
func TestEventSetWait_XIDOfInstance_InData(t *testing.T) {
	server := newServer(t)
	session := server.Sessions.Find(1)
	gpu := model.Handle(firstGPU(t, server))
	_, err := session.SetMIGMode(t.Context(), gpu, true, true)
	require.NoError(t, err)
	handle, err := session.CreateGPUInstance(t.Context(), gpu, 19, nil, true)
	require.NoError(t, err)
	instance, err := session.GPUInstance(handle)
	require.NoError(t, err)
	set, err := session.NewEventSet()
	require.NoError(t, err)
	require.NoError(t, session.Watch(gpu, model.EventXID, set))
	require.NoError(t, server.Node.PostInstanceXID(0, instance.ID, 45))
	reply := callOne(t, server, "nvmlEventSetWait_v2", 1,
		wire.Arg{Direction: wire.In, Size: 8, Bytes: word(uint64(set))}, wire.Arg{Direction: wire.Out, Size: eventSize},
		wire.Arg{Direction: wire.In, Size: 4, Bytes: record{}.u32(0)})
	require.Zero(t, reply.Return)
	data := reply.Outputs[0]
	assert.Equal(t, uint64(45), binary.LittleEndian.Uint64(data[16:]))
	assert.Equal(t, []uint32{7, noInstance}, []uint32{binary.LittleEndian.Uint32(data[24:]), binary.LittleEndian.Uint32(data[28:])})
}

// Without samples the function returns NotFound instead of a buffer size.
func TestProcessUtilization_NoSamples_NotFound(t *testing.T) {
	server := newServer(t)
	gpu := wire.Arg{Direction: wire.In, Size: 8, Bytes: word(firstGPU(t, server))}
	count := wire.Arg{Direction: wire.InOut, Size: 4, Bytes: record{}.u32(0)}
	lastSeen := wire.Arg{Direction: wire.In, Size: 8, Bytes: word(0)}
	reply := callOne(t, server, "nvmlDeviceGetProcessUtilization", 1, gpu, wire.Arg{Direction: wire.Out}, count, lastSeen)
	assert.Equal(t, int32(model.NotFound), reply.Return)
	reply = callOne(t, server, "nvmlDeviceGetFieldValues", 1, gpu, wire.Arg{Direction: wire.InOut})
	assert.Equal(t, int32(model.InvalidArgument), reply.Return, "no values")
}
