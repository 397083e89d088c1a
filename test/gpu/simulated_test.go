package gpu_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// TestSampling_SimulatedGPUs_SameChecks runs the checks of real GPUs in another process, which can load the simulated library: they work,
// and write their fixtures.
func TestSampling_SimulatedGPUs_SameChecks(t *testing.T) {
	if os.Getenv(testedLibrary) != "" {
		t.Skip("this process is the other one")
	}
	for board, gpm := range map[string]bool{"h100-80": true, "a100-40": false} {
		t.Run(board, func(t *testing.T) {
			node := sandbox.Start(t, model.Uniform("node-a", board, 1))
			load := exec.CommandContext(t.Context(), node.GPULoad(), "--memory", "2Gi", "--sm", "60")
			load.Env = []string{"LD_LIBRARY_PATH=" + node.LibraryDir()}
			require.NoError(t, load.Start())
			t.Cleanup(func() {
				_ = load.Process.Kill()
				_ = load.Wait()
			})
			out := t.TempDir()
			checks(t, node, out, "TestSampling_RealGPUs", "GPU 0: memory.used", "GPU 0: Values")
			files, err := filepath.Glob(filepath.Join(out, "sampling-0-*.json"))
			require.NoError(t, err)
			require.Len(t, files, 1)
			raw, err := os.ReadFile(files[0])
			require.NoError(t, err)
			var found sampled
			require.NoError(t, json.Unmarshal(raw, &found))
			assert.Equal(t, gpm, found.GPM)
			assert.Equal(t, gpm, len(found.GPMIDs) > 5, found.GPMIDs)
			assert.Greater(t, len(found.Values), 20)
			assert.Len(t, found.SMI, len(comparedFields))
			assert.NotContains(t, string(raw), node.Model.Identities()[0].UUID, "a fixture names no GPU")

			smi := func(args ...string) {
				t.Helper()
				command := exec.CommandContext(t.Context(), node.SMI(), args...)
				command.Env = []string{"LD_LIBRARY_PATH=" + node.LibraryDir()}
				output, err := command.CombinedOutput()
				require.NoError(t, err, string(output))
			}
			if !gpm {
				return
			}
			require.NoError(t, load.Process.Kill())
			_ = load.Wait()
			smi("-mig", "1")
			smi("mig", "-cgi", "19", "-C")
			checks(t, node, out, "TestSampling_MIGDevices", "samples with values: true")
		})
	}
}

// checks runs tests of this package on the simulated driver, and requires these lines in their output.
func checks(t *testing.T, node *sandbox.Node, out, tests string, lines ...string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), self, "-test.run", tests, "-test.v")
	command.Env = append(os.Environ(), testedLibrary+"="+node.Library(), testedSMI+"="+node.SMI(), "OUT="+out)
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	for _, line := range lines {
		assert.Contains(t, string(output), line)
	}
	assert.NotContains(t, string(output), "SKIP")
	t.Logf("%s", output)
}
