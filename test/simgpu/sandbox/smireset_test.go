package sandbox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

const resetRefused = "GPU 00000000:43:00.0 was successfully reset.\n" +
	"The following GPUs could not be reset:\n" +
	"  GPU 00000000:1B:00.0: In use by another client\n" +
	"\n" +
	"1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics application such as an X server, " +
	"or a monitoring application such as another instance of nvidia-smi). Please first kill all processes using this device and all compute applications running in the system.\n"

// nvidia-smi -r resets GPUs without another session; its own session does not matter.
func TestSMI_Reset_RefusedWhileAttached(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	for gpu := range 2 {
		require.NoError(t, node.Model.ChangeHealth(gpu, func(h *model.Health) { h.Action = 1 }))
	}
	session, err := node.Model.Open("", []int{0})
	require.NoError(t, err)
	output, code := smi(t, node, "-r")
	assert.Equal(t, resetRefused, output)
	assert.Equal(t, 255, code)
	gpus := node.Model.GPUs()
	assert.Equal(t, []model.RecoveryAction{1, 0}, []model.RecoveryAction{gpus[0].Health.Action, gpus[1].Health.Action})

	session.Close()
	output, code = smi(t, node, "--gpu-reset", "-i", "0")
	assert.Equal(t, "GPU 00000000:1B:00.0 was successfully reset.\n", output)
	assert.Zero(t, code)
	assert.Zero(t, node.Model.GPUs()[0].Health.Action)
}
