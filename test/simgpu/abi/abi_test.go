package abi

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/wire"
)

// oneSession is Sessions with a single session that sees everything.
type oneSession struct{ session *model.Session }

func (s oneSession) Begin(model.DriverVersion, model.DeviceNodes) (uint64, error) { return 1, nil }
func (s oneSession) Find(id uint64) *model.Session {
	if id != 1 {
		return nil
	}
	return s.session
}
func (s oneSession) End(uint64) {}

func newServer(t *testing.T) Server {
	t.Helper()
	node, err := model.New(model.Uniform("node-a", "h100-80", 2))
	require.NoError(t, err)
	session, err := node.Open("", []int{0, 1})
	require.NoError(t, err)
	return Server{Node: node, Sessions: oneSession{session}}
}

func firstGPU(t *testing.T, server Server) uint64 {
	t.Helper()
	h, err := server.Sessions.Find(1).ByIndex(0)
	require.NoError(t, err)
	return uint64(h)
}

// argsOf returns arguments as the C library sends them, with zero inputs except
// for the GPU.
func argsOf(symbol Symbol, gpu uint64) []wire.Arg {
	var args []wire.Arg
	for _, p := range symbol.Params {
		for _, arg := range p.wire() {
			if arg.Size < 0 {
				arg.Size = 256
			}
			if arg.Direction != wire.Out {
				arg.Bytes = make([]byte, arg.Size)
			}
			if p.Kind == Pointer && p.Name == "device" {
				arg.Bytes = word(gpu)
			}
			args = append(args, arg)
		}
	}
	return args
}

func TestTable_Symbols_Consistent(t *testing.T) {
	seen := map[string]bool{}
	for _, symbol := range Symbols() {
		assert.False(t, seen[symbol.Name], "%s is there twice", symbol.Name)
		seen[symbol.Name] = true
		if symbol.Place != Written {
			assert.NotNil(t, symbol.answer, "nothing answers %s", symbol.Name)
		}
		assert.LessOrEqual(t, len(symbol.Name), 255)
	}
	assert.Nil(t, find("nvmlDeviceGetNothing"))
}

// Every function serves a well-formed call with outputs that fit into the caller's buffers, and a malformed one with InvalidArgument.
func TestAnswer_EveryFunction_FitsArguments(t *testing.T) {
	caller := Caller{PID: 1, Process: "test", Root: true}
	for _, symbol := range Symbols() {
		if symbol.answer == nil {
			continue
		}
		t.Run(symbol.Name, func(t *testing.T) {
			server := newServer(t)
			args := argsOf(symbol, firstGPU(t, server))
			request := wire.Request{Session: 1, Name: symbol.Name, Args: args}
			reply, err := server.Answer(t.Context(), caller, request)
			require.NoError(t, err)
			require.NotEqual(t, int32(model.FunctionNotFound), reply.Return)
			room := outputs(args)
			require.Len(t, reply.Outputs, len(room))
			for i, output := range reply.Outputs {
				require.LessOrEqual(t, len(output), room[i].Size)
			}

			request.Args = append(request.Args, wire.Arg{Direction: wire.Out, Size: 4})
			reply, err = server.Answer(t.Context(), caller, request)
			require.NoError(t, err)
			require.Equal(t, int32(model.InvalidArgument), reply.Return)
		})
	}
}

func outputs(args []wire.Arg) []wire.Arg {
	var out []wire.Arg
	for _, arg := range args {
		if arg.Direction != wire.In {
			out = append(out, arg)
		}
	}
	return out
}

func callOne(t *testing.T, server Server, name string, session uint64, args ...wire.Arg) wire.Reply {
	t.Helper()
	reply, err := server.Answer(t.Context(), Caller{}, wire.Request{Session: session, Name: name, Args: args})
	require.NoError(t, err)
	return reply
}

func TestAnswer_Malformed_Refused(t *testing.T) {
	server := newServer(t)
	gpu := wire.Arg{Direction: wire.In, Size: 8, Bytes: word(firstGPU(t, server))}
	room := func(n int) wire.Arg { return wire.Arg{Direction: wire.Out, Size: n} }
	version := func(v uint32) wire.Arg {
		return wire.Arg{Direction: wire.InOut, Size: 40, Bytes: append(record{}.u32(v), make([]byte, 36)...)}
	}
	tests := map[string]struct {
		reply wire.Reply
		want  model.Return
	}{
		"no such function":  {callOne(t, server, "nvmlNothing", 1), model.FunctionNotFound},
		"no room":           {callOne(t, server, "nvmlDeviceGetUUID", 1, gpu, room(40)), model.InsufficientSize},
		"just enough room":  {callOne(t, server, "nvmlDeviceGetUUID", 1, gpu, room(41)), model.Success},
		"wrong struct":      {callOne(t, server, "nvmlDeviceGetMemoryInfo_v2", 1, gpu, version(1)), model.VersionMismatch},
		"right struct":      {callOne(t, server, "nvmlDeviceGetMemoryInfo_v2", 1, gpu, version(structVersion(40, 2))), model.Success},
		"session of before": {callOne(t, server, "nvmlDeviceGetUUID", 7, gpu, room(41)), model.DriverNotLoaded},
		"not root": {
			callOne(t, server, "nvmlDeviceSetComputeMode", 1, gpu, wire.Arg{Direction: wire.In, Size: 4, Bytes: record{}.u32(3)}),
			model.NoPermission,
		},
		"system call without driver": {
			func() wire.Reply {
				server.Node.Unload()
				return callOne(t, server, "nvmlSystemGetCudaDriverVersion", 0, room(4))
			}(),
			model.DriverNotLoaded,
		},
	}
	for name, test := range tests {
		assert.Equal(t, int32(test.want), test.reply.Return, name)
	}
}

// A fault on one GPU applies to calls that identify it by handle, index, UUID or
// address, and no other.
func TestAnswer_LostGPU_ByAnyIdentifier(t *testing.T) {
	server := newServer(t)
	_, err := server.Node.Faults.Add(model.Fault{Effect: model.EffectError, GPU: 1, Return: model.GPUIsLost})
	require.NoError(t, err)
	handle := wire.Arg{Direction: wire.Out, Size: 8}
	for ordinal, want := range []model.Return{model.Success, model.GPUIsLost} {
		id := server.Node.Identities()[ordinal]
		text := func(s string) wire.Arg { return wire.Arg{Direction: wire.In, Size: len(s), Bytes: []byte(s)} }
		index := wire.Arg{Direction: wire.In, Size: 4, Bytes: record{}.u32(uint32(ordinal))}
		h, err := server.Sessions.Find(1).ByIndex(ordinal)
		require.NoError(t, err)
		device := wire.Arg{Direction: wire.In, Size: 8, Bytes: word(uint64(h))}
		assert.Equal(t, int32(want), callOne(t, server, "nvmlDeviceGetHandleByIndex_v2", 1, index, handle).Return)
		assert.Equal(t, int32(want), callOne(t, server, "nvmlDeviceGetHandleByUUID", 1, text(id.UUID), handle).Return)
		assert.Equal(t, int32(want), callOne(t, server, "nvmlDeviceGetHandleByPciBusId_v2", 1, text(id.PCI.Long()), handle).Return)
		assert.Equal(t, int32(want), callOne(t, server, "nvmlDeviceGetMinorNumber", 1, device, wire.Arg{Direction: wire.Out, Size: 4}).Return)
	}
	assert.Equal(t, int32(model.Success), callOne(t, server, "nvmlDeviceGetCount_v2", 1, wire.Arg{Direction: wire.Out, Size: 4}).Return)
}

func TestAnswer_HangingCall_EndsWithContext(t *testing.T) {
	server := newServer(t)
	_, err := server.Node.Faults.Add(model.Fault{Effect: model.EffectHang, GPU: model.AnyGPU})
	require.NoError(t, err)
	gone := errors.New("the process is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, err = server.Answer(ctx, Caller{}, wire.Request{Session: 1, Name: "nvmlDeviceGetCount_v2", Args: []wire.Arg{{Direction: wire.Out, Size: 4}}})
	require.ErrorIs(t, err, gone)
}
