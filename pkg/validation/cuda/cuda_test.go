package cuda

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/validation"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// childEnv is the root directory of a node whose library the process loads.
const childEnv = "CUDA_TEST_ROOT"

func TestMain(m *testing.M) {
	if root := os.Getenv(childEnv); root != "" {
		result := validation.Run(validation.Options{CUDA: &Driver{}, Root: root, Timeout: time.Minute, Report: func(validation.Check) {}})
		_ = json.NewEncoder(os.Stdout).Encode(result)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// validate runs a validation in a process with the simulated library of a node.
func validate(t *testing.T, node *sandbox.Node, env ...string) *validation.Result {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append([]string{childEnv + "=" + node.Root(), "LD_LIBRARY_PATH=" + node.LibraryDir()}, env...)
	out, err := command.Output()
	require.NoError(t, err)
	result, err := validation.ParseResult(string(out))
	require.NoError(t, err)
	return result
}

func TestDriver_SimulatedLibrary_DevicesAndMemory(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	result := validate(t, node)
	require.Nil(t, result.Failed())
	ids := node.Model.Identities()
	assert.Empty(t, validation.Different([]string{ids[0].UUID, ids[1].UUID}, result.UUIDs))
	for _, gpu := range node.Model.GPUs() {
		assert.Zero(t, gpu.Clients, "contexts are destroyed")
	}
	result = validate(t, node, "CUDA_VISIBLE_DEVICES=7")
	assert.Equal(t, "cuInit: cuInit returned 100, no device: the driver cannot use the GPU; nvidia-smi on the node shows its state", result.Failed().String())
}

func TestDriver_NoLibrary_SaysWhatToChange(t *testing.T) {
	t.Parallel()
	_, err := (&Driver{}).Init()
	if err == nil {
		t.Skip("this machine has a CUDA driver")
	}
	assert.Contains(t, err.Error(), "the container has no libcuda.so.1 that can be loaded (")
}

func TestMounted_Mountinfo_PathsOfTheLibrary(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mountinfo")
	require.NoError(t, os.WriteFile(file, []byte("1 2 8:1 /usr/lib64/libcuda.so.580 /usr/lib64/libcuda.so.580.95 ro - ext4 /dev/sda1 ro\n"+
		"1 2 8:1 /x /usr/lib64/libcudadebugger.so.1 ro - ext4 /dev/sda1 ro\nshort\n"), 0o600))
	assert.Equal(t, []string{"/usr/lib64/libcuda.so.580.95"}, mounted(file))
	assert.Empty(t, mounted(file+"-missing"))
}

func TestFailed_Codes_FunctionAndRemedy(t *testing.T) {
	t.Parallel()
	assert.NoError(t, failed("cuInit", 0))
	assert.EqualError(t, failed("cuInit", 1), "cuInit returned 1: nvidia-smi and dmesg of the node show the state of the GPU")
}
