package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// asCommand is the environment variable that makes this test binary the simgpu command.
const asCommand = "SIMGPU_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(sandbox.OnGPUMachine(m))
}

// node is a node created with the command line.
type node struct {
	t    *testing.T
	root string
}

func needNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a simulated GPU node needs root, to make device nodes")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("a simulated GPU node needs gcc, to build its libnvidia-ml")
	}
	root, err := os.MkdirTemp("", "simgpu-")
	require.NoError(t, err)
	n := &node{t: t, root: root}
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(root, "run/simgpu/node.json")); err == nil {
			n.must("destroy")
		}
		require.NoError(t, os.RemoveAll(root))
	})
	return n
}

func (n *node) command(args ...string) *exec.Cmd {
	n.t.Helper()
	self, err := os.Executable()
	require.NoError(n.t, err)
	if args[0] != "models" && args[0] != "build" {
		args = append(args, "--root", n.root)
	}
	command := exec.Command(self, args...) // not t.Context: destroy runs in a cleanup
	command.Env = append(os.Environ(), asCommand+"=1")
	return command
}

func (n *node) must(args ...string) string {
	n.t.Helper()
	var errors bytes.Buffer
	command := n.command(args...)
	command.Stderr = &errors
	output, err := command.Output()
	require.NoError(n.t, err, "simgpu %v: %s", args, errors.String())
	return string(output)
}

func (n *node) refused(args ...string) string {
	n.t.Helper()
	output, err := n.command(args...).CombinedOutput()
	require.Error(n.t, err, "simgpu %v", args)
	return string(output)
}

func (n *node) state() model.Snapshot {
	n.t.Helper()
	var snapshot model.Snapshot
	require.NoError(n.t, json.Unmarshal([]byte(n.must("state")), &snapshot))
	return snapshot
}

func (n *node) smi(args ...string) string {
	n.t.Helper()
	command := exec.CommandContext(n.t.Context(), filepath.Join(n.root, "usr/bin/nvidia-smi"), args...)
	libraries, err := filepath.Glob(filepath.Join(n.root, "usr/lib/*-linux-gnu"))
	require.NoError(n.t, err)
	command.Env = []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")}
	output, _ := command.CombinedOutput()
	return string(output)
}

func TestCommands_Node_CreatedUsedDestroyed(t *testing.T) {
	n := needNode(t)
	assert.Equal(t, "node n1: 2 × NVIDIA H100 80GB HBM3, driver 580.95.05, below "+n.root+"\n",
		n.must("create", "--sandbox", "--name", "n1", "--count", "2"))
	state := n.state()
	assert.Equal(t, "n1", state.Name)
	require.Len(t, state.GPUs, 2)
	assert.Contains(t, n.smi("-L"), state.GPUs[1].UUID)
	assert.Contains(t, n.refused("create", "--sandbox"), "one is running already (simgpu destroy --root")

	calls := n.state().Calls
	require.Len(t, calls, 1)
	assert.Equal(t, "nvidia-smi", calls[0].Process)
	assert.Equal(t, uint64(2), calls[0].Counts["nvmlDeviceGetUUID"])

	n.must("destroy")
	left, err := os.ReadDir(n.root)
	require.NoError(t, err)
	assert.Empty(t, left, "destroy removes the files of create")
	assert.Contains(t, n.refused("state"), "there is none (create one with simgpu create, or set --root)")
}

func TestInject_Faults_InjectedAndCleared(t *testing.T) {
	n := needNode(t)
	n.must("create", "--sandbox", "--name", "n1", "--model", "t4,a30")
	uuids := []string{n.state().GPUs[0].UUID, n.state().GPUs[1].UUID}
	steps := []struct {
		inject []string
		want   string
	}{
		{[]string{"gpu-lost", "--gpu", "0"}, "Unable to determine the device handle for gpu 0: GPU is lost."},
		{[]string{"init-fails", "--code", "Insufficient Permissions"}, "Failed to initialize NVML: Insufficient Permissions"},
		{[]string{"error", "--call", "nvmlDeviceGetName", "--code", "999"}, "Unknown Error"},
		{[]string{"slow", "--delay", "1ms", "--times", "1"}, uuids[0]},
		{[]string{"hang", "--for", "10ms"}, uuids[0]},
		{[]string{"driver-unload"}, "couldn't communicate with the NVIDIA driver"},
		{[]string{"driver-load"}, uuids[0]},
		{[]string{"device-node-missing", "--gpu", "0"}, "GPU 0: NVIDIA A30"},
		{[]string{"device-node-missing", "--node", "nvidiactl"}, "couldn't communicate with the NVIDIA driver"},
		{[]string{"device-node-restore"}, uuids[0]},
		{[]string{"xid", "79", "--gpu", "1"}, uuids[1]},
		{[]string{"driver-upgrade", "550.54.15"}, uuids[1]},
	}
	for _, step := range steps {
		t.Run(step.inject[0], func(t *testing.T) {
			n.must(append([]string{"inject"}, step.inject...)...)
			assert.Contains(t, n.smi("-L"), step.want)
			n.must("inject", "clear")
		})
	}
	assert.Equal(t, model.DriverVersion("550.54.15"), n.state().Driver.Version)
	assert.Empty(t, n.state().Faults)
	version, err := os.ReadFile(filepath.Join(n.root, "proc/driver/nvidia/version"))
	require.NoError(t, err)
	assert.Contains(t, string(version), "550.54.15")
}

func TestCommands_InvalidInput_OneLineError(t *testing.T) {
	n := needNode(t)
	n.must("create", "--sandbox", "--name", "n1", "--count", "1")
	for want, args := range map[string][]string{
		`finding board "h900"`:                       {"create", "--sandbox", "--model", "h900"},
		"--count 3 but --model names 2 boards":       {"create", "--sandbox", "--model", "t4,t4", "--count", "3"},
		`reading driver version "newest"`:            {"create", "--sandbox", "--driver", "newest"},
		"losing a GPU: --gpu is missing":             {"inject", "gpu-lost"},
		"finding GPU 4: the node has 1":              {"inject", "device-node-missing", "--gpu", "4"},
		"no such device on the GPU node":             {"inject", "device-node-missing", "--node", "null"},
		"clearing fault 99: no such fault is active": {"inject", "clear", "99"},
		`reading NVML return code "bad"`:             {"inject", "error", "--code", "bad"},
		"raising an XID: --gpu is missing":           {"inject", "xid", "79"},
		"this is the host itself, not a node ":       {"create", "--dev", "/dev"},
	} {
		output := n.refused(args...)
		assert.Contains(t, output, want)
		assert.Equal(t, 1, strings.Count(output, "\n"), output)
	}
}

// A power cut kills only the daemon; the next boot creates the same node again, with the last installed driver.
func TestCreate_AfterReboot_SameNode(t *testing.T) {
	n := needNode(t)
	kept := filepath.Join(t.TempDir(), "state.json")
	create := []string{"create", "--sandbox", "--count", "2", "--state", kept}
	n.must(append(create, "--name", "n1")...)
	before := n.state()
	n.must("inject", "driver-upgrade", "550.54.15")
	n.must("inject", "gpu-lost", "--gpu", "0")
	n.kill()

	assert.Equal(t, "node n1: 2 × NVIDIA H100 80GB HBM3, driver 550.54.15, below "+n.root+"\n", n.must(create...))
	after := n.state()
	for i := range after.GPUs {
		after.GPUs[i].Load, before.GPUs[i].Load = nil, nil // counts time
	}
	assert.Equal(t, before.GPUs, after.GPUs)
	assert.Empty(t, after.Faults)
	assert.Contains(t, n.smi("-L"), before.GPUs[0].UUID)
}

// A replaced GPU is another one after the next boot, and stays it. The other GPU of the node is the same.
func TestCreate_AfterReboot_ReplacedGPUIsAnother(t *testing.T) {
	n := needNode(t)
	create := []string{"create", "--sandbox", "--count", "2", "--state", filepath.Join(t.TempDir(), "state.json")}
	n.must(append(create, "--name", "n1")...)
	before := n.state().GPUs
	n.must("inject", "gpu-replaced", "--gpu", "1")
	assert.Equal(t, before[1].UUID, n.state().GPUs[1].UUID, "until the boot")
	n.kill()
	n.must(create...)
	after := n.state().GPUs
	assert.Equal(t, before[0].UUID, after[0].UUID)
	assert.NotEqual(t, before[1].UUID, after[1].UUID)
	assert.NotEqual(t, before[1].Serial, after[1].Serial)
	assert.Equal(t, before[1].PCI, after[1].PCI)
	n.kill()
	n.must(create...)
	assert.Equal(t, after[1].UUID, n.state().GPUs[1].UUID)
}

// Ampere keeps its MIG mode, Hopper forgets it.
func TestCreate_AfterReboot_MIGModeOfAmpereKept(t *testing.T) {
	n := needNode(t)
	create := []string{"create", "--sandbox", "--model", "a30,h100-80,a100-80", "--state", filepath.Join(t.TempDir(), "state.json")}
	n.must(append(create, "--name", "n1", "--mig", "2")...)
	modes := func() [3]bool {
		var on [3]bool
		for i, gpu := range n.state().GPUs {
			on[i] = gpu.MIG
		}
		return on
	}
	n.smi("-mig", "1")
	assert.Equal(t, [3]bool{false, true, true}, modes(), "an A30 waits for a reset")
	n.smi("-i", "2", "-mig", "0")
	n.kill()
	n.must(create...)
	assert.Equal(t, [3]bool{true, false, false}, modes())
	n.must("inject", "driver-upgrade", "550.54.15")
	assert.Equal(t, [3]bool{true, false, false}, modes())
	n.kill()
	n.must(create...)
	assert.Equal(t, [3]bool{true, false, false}, modes())
	assert.Equal(t, model.DriverVersion("550.54.15"), n.state().Driver.Version)
	n.kill()
	n.must(append(create, "--mig", "2")...)
	assert.Equal(t, [3]bool{false, false, true}, modes(), "the flag wins")
}

// kill kills the daemon like a power cut.
func (n *node) kill() {
	n.t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(n.t, err)
	for _, file := range processes {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.HasSuffix(line, []byte("serve\x00--root\x00"+n.root+"\x00")) {
			continue
		}
		var pid int
		require.NoError(n.t, json.Unmarshal([]byte(filepath.Base(filepath.Dir(file))), &pid))
		require.NoError(n.t, syscall.Kill(pid, syscall.SIGKILL))
		return
	}
	n.t.Fatal("the daemon is not there")
}

func TestModelsAndBuild_Output_BoardsAndBundle(t *testing.T) {
	n := needNode(t)
	assert.Contains(t, n.must("models"), "h100-80   NVIDIA H100 80GB HBM3  81559 MiB   9.0      7    >= 525\n")
	dir := t.TempDir()
	built := strings.TrimSpace(n.must("build", "--out", dir, "--driver", "535.183.01"))
	assert.FileExists(t, filepath.Join(built, "lib/libnvidia-ml.so.535.183.01"))
	assert.Equal(t, dir, filepath.Dir(built))
}

func TestInject_MIGLatencyAndReset_Applied(t *testing.T) {
	n := needNode(t)
	n.must("create", "--sandbox", "--name", "n1", "--model", "a30", "--count", "2", "--mig", "1")
	n.must("inject", "mig-latency", "--create-gi", "1s")
	n.must("reset", "1")
	assert.Contains(t, n.refused("reset", "GPU-none"), "no GPU with this UUID")
	assert.Contains(t, n.refused("reset", "2"), "Invalid Argument")
	state := n.state()
	assert.Equal(t, []bool{false, true}, []bool{state.GPUs[0].MIG, state.GPUs[1].MIG})
}

// If nothing keeps a GPU initialised, a compute mode that nvidia-smi sets is lost.
func TestInject_PersistenceOff_ComputeModeLost(t *testing.T) {
	n := needNode(t)
	n.must("create", "--sandbox", "--name", "n1", "--model", "h100-80", "--count", "2")
	modes := func() [2]model.ComputeMode {
		return [2]model.ComputeMode{n.state().GPUs[0].ComputeMode, n.state().GPUs[1].ComputeMode}
	}
	n.must("inject", "persistence-off", "--gpu", "1")
	assert.False(t, n.state().GPUs[1].Persistenced)
	n.smi("-c", "EXCLUSIVE_PROCESS")
	require.Eventually(t, func() bool {
		return modes() == [2]model.ComputeMode{model.ComputeExclusiveProcess, model.ComputeDefault}
	}, time.Minute, time.Millisecond)
	n.must("inject", "persistence-on", "--gpu", "1")
	n.smi("-c", "EXCLUSIVE_PROCESS")
	n.smi("-L")
	assert.Equal(t, [2]model.ComputeMode{model.ComputeExclusiveProcess, model.ComputeExclusiveProcess}, modes())
	assert.Contains(t, n.refused("inject", "persistence-off"), "--gpu is missing")
	assert.Contains(t, n.refused("inject", "persistence-on", "--gpu", "2"), "Invalid Argument")
}

// A held GPU is in use until it is released.
func TestInject_HoldAndRelease_DeviceInUse(t *testing.T) {
	n := needNode(t)
	n.must("create", "--sandbox", "--name", "n1", "--model", "h100-80", "--count", "2")
	uuids := []string{n.state().GPUs[0].UUID, n.state().GPUs[1].UUID}
	clients := func() []int { return []int{n.state().GPUs[0].Clients, n.state().GPUs[1].Clients} }
	n.must("inject", "hold", uuids[0])
	n.must("inject", "hold", uuids[0])
	n.must("inject", "hold", uuids[1])
	assert.Equal(t, []int{2, 1}, clients())
	assert.Contains(t, n.refused("reset", uuids[0]), "In use by another client")
	n.must("inject", "release", uuids[0])
	assert.Equal(t, []int{0, 1}, clients())
	n.must("reset", uuids[0])
	assert.Contains(t, n.refused("inject", "release", uuids[0]), "it is not held")
	n.must("inject", "release")
	assert.Equal(t, []int{0, 0}, clients())
	n.must("inject", "release")
	assert.Contains(t, n.refused("inject", "hold", "MIG-nothing"), `holding "MIG-nothing": no GPU or MIG device of the node has this UUID`)
}
