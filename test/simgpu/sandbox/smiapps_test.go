package sandbox_test

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// smiLines returns the lines that the simulated nvidia-smi prints.
func smiLines(t *testing.T, node *sandbox.Node, args ...string) []string {
	t.Helper()
	output, code := smi(t, node, args...)
	require.Zero(t, code, output)
	if output = strings.TrimSuffix(output, "\n"); output == "" {
		return nil
	}
	return strings.Split(output, "\n")
}

// TestSMI_BusyGPU_ValuesOfTheModel: queries and the table show the load of the programs on the GPUs, and their processes.
func TestSMI_BusyGPU_ValuesOfTheModel(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	const memory = "--query-gpu=memory.used,utilization.gpu,temperature.gpu,power.draw,clocks.sm"
	idle := smiLines(t, node, memory, "--format=csv,noheader,nounits")
	assert.Empty(t, smiLines(t, node, "--query-compute-apps=pid", "--format=csv,noheader"))
	table := strings.Join(smiLines(t, node), "\n")
	assert.Contains(t, table, "No running processes found")

	pass := settableClock(node)
	command := gpuLoad(t, node, "--memory", "2Gi", "--sm", "60")
	pass(time.Minute)
	gpus := node.Model.Snapshot().GPUs
	busy := smiLines(t, node, memory, "--format=csv,noheader,nounits")
	require.Len(t, busy, 2)
	assert.Equal(t, idle[1], busy[1])
	var used, load, celsius, clock int
	var watts float64
	_, err := fmt.Sscanf(busy[0], "%d, %d, %d, %f, %d", &used, &load, &celsius, &watts, &clock)
	require.NoError(t, err, busy[0])
	assert.GreaterOrEqual(t, used, 2048)
	assert.Equal(t, 60, load)
	var idleCelsius, idleClock int
	var idleWatts float64
	_, err = fmt.Sscanf(idle[0], "%d, %d, %d, %f, %d", new(int), new(int), &idleCelsius, &idleWatts, &idleClock)
	require.NoError(t, err)
	assert.Greater(t, celsius, idleCelsius)
	assert.Greater(t, watts, idleWatts)
	assert.Greater(t, clock, idleClock)

	apps := smiLines(t, node, "--query-compute-apps=pid,process_name,used_memory,gpu_uuid", "--format=csv")
	assert.Equal(t, []string{
		"pid, process_name, used_gpu_memory [MiB], gpu_uuid",
		fmt.Sprintf("%d, %s, %d MiB, %s", command.Process.Pid, node.GPULoad(), used, gpus[0].UUID),
	}, apps)
	table = strings.Join(smiLines(t, node), "\n")
	assert.Contains(t, table, fmt.Sprintf("| N/A %4dC    P0  ", celsius))
	assert.Contains(t, table, fmt.Sprintf("%dMiB /", used))
	assert.Contains(t, table, "    60%      Default |")
	assert.Contains(t, table, fmt.Sprintf("|    0   N/A  N/A %16d      C   ...", command.Process.Pid))
	for line := range strings.SplitSeq(table, "\n") {
		if strings.HasPrefix(line, "|") || strings.HasPrefix(line, "+") {
			assert.Len(t, line, 91, line)
		}
	}

	require.NoError(t, command.Process.Kill())
	_ = command.Wait()
	require.Eventually(t, func() bool {
		return len(smiLines(t, node, "--query-compute-apps=pid", "--format=csv,noheader")) == 0
	}, time.Minute, 10*time.Millisecond)
}

// TestSMI_ProcessInMIGDevice_InstanceNamed: utilization is N/A, as the driver reports none for a GPU in MIG mode.
func TestSMI_ProcessInMIGDevice_InstanceNamed(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	smiLines(t, node, "-mig", "1")
	created := smiLines(t, node, "mig", "-cgi", "19", "-C")
	var instance int
	_, err := fmt.Sscanf(created[0], "Successfully created GPU instance ID %d", &instance)
	require.NoError(t, err, created[0])
	var uuid string
	for _, line := range smiLines(t, node, "-L") {
		if _, after, found := strings.Cut(line, "(UUID: MIG-"); found {
			uuid = "MIG-" + strings.TrimSuffix(after, ")")
		}
	}
	require.NotEmpty(t, uuid)
	command := exec.CommandContext(t.Context(), node.GPULoad(), "--memory", "1Gi")
	command.Env = []string{"LD_LIBRARY_PATH=" + node.LibraryDir(), "CUDA_VISIBLE_DEVICES=" + uuid}
	require.NoError(t, startWorking(command))
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	assert.Equal(t, []string{strconv.Itoa(command.Process.Pid)}, smiLines(t, node, "--query-compute-apps=pid", "--format=csv,noheader"))
	assert.Equal(t, []string{"[N/A], 1980"}, smiLines(t, node, "--query-gpu=utilization.gpu,clocks.max.sm", "--format=csv,noheader,nounits"))
	table := strings.Join(smiLines(t, node), "\n")
	assert.Contains(t, table, fmt.Sprintf("|    0  %4d    0 %16d      C   ...", instance, command.Process.Pid))
	assert.Contains(t, table, "    N/A      Default |")
}
