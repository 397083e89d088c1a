package sandbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// All tests of this package run as on a host with its own GPUs, which no sandbox exposes.
func TestSandbox_MachineHasGPUs_NotSeen(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "t4", 2))
	if !sandbox.IsGPUMachine() {
		t.Skip("no mount namespace can be made here")
	}
	for _, name := range []string{"nvidiactl", "nvidia0", "nvidia1", "nvidia-caps/nvidia-cap1", "null"} {
		info, err := os.Stat(filepath.Join("/dev", name))
		require.NoError(t, err)
		assert.Equal(t, os.ModeCharDevice|os.ModeDevice, info.Mode().Type(), name)
	}
	node.RemoveDeviceNode("nvidia1")
	output, code := smi(t, node, "-L")
	assert.Equal(t, "GPU 0: Tesla T4 (UUID: "+node.Model.Identities()[0].UUID+")\n", output)
	assert.Zero(t, code)
	node.RemoveDeviceNode("nvidiactl")
	_, code = smi(t, node, "-L")
	assert.Equal(t, int(model.DriverNotLoaded), code, "the control node of the machine is not the sandbox's")
}
