package abi

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/wire"
)

// serverOf serves one GPU.
func serverOf(t *testing.T, board string, driver model.DriverVersion) Server {
	t.Helper()
	spec := model.Uniform("node-a", board, 1)
	spec.Driver = driver
	node, err := model.New(spec)
	require.NoError(t, err)
	session, err := node.Open("", []int{0})
	require.NoError(t, err)
	return Server{Node: node, Sessions: oneSession{session}}
}

func TestFabricInfo_Versions_StateAndHealth(t *testing.T) {
	v2, v3 := structVersion(36, 2), structVersion(40, 3)
	for _, test := range []struct {
		board  string
		driver model.DriverVersion
		state  model.FabricState
		wanted uint32
		want   model.Return
		mask   uint32
	}{
		{"h100-80", "580.95.05", model.FabricCompleted, v3, model.Success, 0x1aa},
		{"h100-80", "580.95.05", model.FabricInProgress, v3, model.Success, 0},
		{"h100-80", "570.86.15", model.FabricCompleted, v2, model.Success, 0xaa},
		{"h200-141", "550.54.15", model.FabricCompleted, v2, model.Success, 2},
		{"h100-80", "570.86.15", model.FabricCompleted, v3, model.VersionMismatch, 0},
		{"l40s", "580.95.05", model.FabricNotSupported, v2, model.NotSupported, 0},
		{"a100-80", "580.95.05", model.FabricNotSupported, v2, model.NotSupported, 0},
	} {
		server := serverOf(t, test.board, test.driver)
		require.NoError(t, server.Node.ChangeHealth(0, func(h *model.Health) { h.Fabric = test.state }))
		gpu := wire.Arg{Direction: wire.In, Size: 8, Bytes: word(firstGPU(t, server))}
		size := int(test.wanted & 0xffffff)
		room := wire.Arg{Direction: wire.InOut, Size: size, Bytes: append(record{}.u32(test.wanted), make([]byte, size-4)...)}
		reply := callOne(t, server, "nvmlDeviceGetGpuFabricInfoV", 1, gpu, room)
		require.Equal(t, int32(test.want), reply.Return, test)
		if test.want != model.Success {
			continue
		}
		info := reply.Outputs[0]
		require.Len(t, info, size)
		assert.Equal(t, test.wanted, binary.LittleEndian.Uint32(info))
		assert.Equal(t, byte(test.state), info[28])
		assert.Equal(t, test.mask, binary.LittleEndian.Uint32(info[32:]), test)
		if test.wanted == v3 {
			assert.Equal(t, test.state == model.FabricCompleted, info[36] == 1)
		}

		reply = callOne(t, server, "nvmlDeviceGetGpuFabricInfo", 1, gpu, wire.Arg{Direction: wire.Out, Size: 28})
		assert.Equal(t, byte(test.state), reply.Outputs[0][24])
	}
}
