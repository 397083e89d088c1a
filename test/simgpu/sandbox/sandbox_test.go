package sandbox_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// Production go-nvml reads the state of the model through the C library.
func TestGoNVML_Node_MatchesModel(t *testing.T) {
	specs := map[string]model.Spec{
		"mixed boards": {Name: "node-a", Boards: []string{"t4", "a30", "h100-80"}, Minors: []int{2, 0, 1}},
		"old driver":   {Name: "node-a", Driver: "535.183.01", Boards: []string{"a100-40", "h200-141"}},
		"no GPU":       {Name: "node-a"},
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			node := sandbox.Start(t, spec)
			child := start(t, node, "survey")
			var got nodeReport
			child.receive(&got)
			child.end()
			if diff := cmp.Diff(expected(node.Model), got); diff != "" {
				t.Fatalf("go-nvml read something else than the model holds (-model +go-nvml):\n%s", diff)
			}
		})
	}
}

func expected(node *model.Node) nodeReport {
	version, _ := node.Driver()
	report := nodeReport{
		Driver: version.String(), NVML: version.NVML(), CUDA: version.CUDA(),
		Symbols: map[string]bool{
			"nvmlInit_v2": true, "nvmlDeviceGetMemoryInfo_v2": true, "nvmlDeviceSetMemoryLimits_v1": false,
			"nvmlDeviceGetNumaNodeId":     version.Branch() >= 550,
			"nvmlDeviceGetGpuFabricInfoV": version.Branch() >= 550,
			"nvmlDeviceGetAddressingMode": version.Branch() >= 580,
		},
	}
	boards := node.Boards()
	for i, id := range node.Identities() {
		board := boards[i]
		gpu := gpuReport{
			UUID: id.UUID, Name: board.Product.Name, BusID: id.PCI.Long(), Index: i, Minor: id.Minor,
			Cores: board.Compute.Multiprocessors * board.Compute.CoresPerMultiprocessor,
			Brand: int(nvml.BRAND_NVIDIA), Architecture: int(board.Compute.Architecture),
			Major: board.Compute.Major, MinorCC: board.Compute.Minor,
			Total: board.Memory.TotalMiB << 20, TotalV2: board.Memory.TotalMiB << 20, Reserved: board.Memory.ReservedMiB << 20,
			PCIDevice: board.Product.PCIDevice, MaxMIG: board.MIG.MaxDevices,
			MIGMode: nvml.SUCCESS, Attributes: nvml.ERROR_NOT_SUPPORTED, Fan: nvml.ERROR_NOT_SUPPORTED,
			ByUUID: true, ByBusID: true, Limit: board.Power.Limit,
		}
		if board.MIG.Capable() {
			engines := board.Engines
			for _, n := range []int{board.MIG.MaxDevices, board.MIG.Multiprocessors, engines.Copy, engines.Decoder, engines.Encoder, engines.JPEG, engines.OFA} {
				gpu.Engines = append(gpu.Engines, uint32(n))
			}
		} else {
			gpu.MIGMode = nvml.ERROR_NOT_SUPPORTED
		}
		if version.Branch() >= 550 {
			gpu.NUMA = nvml.ERROR_NOT_SUPPORTED
		}
		report.GPUs = append(report.GPUs, gpu)
	}
	return report
}

// Concurrent calls of many threads are all counted.
func TestGoNVML_ParallelCalls_AllCounted(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	child := start(t, node, "parallel")
	var pid int
	child.receive(&pid)
	require.Equal(t, child.command.Process.Pid, pid)
	calls := node.Model.Calls.Of(pid)
	want := map[string]uint64{
		"nvmlInit_v2": 1, "nvmlDeviceGetHandleByIndex_v2": 1, "nvmlEventSetCreate": 1, "nvmlDeviceRegisterEvents": 1,
		"nvmlEventSetWait_v2": 1, "nvmlDeviceGetUUID": parallelCallers * callsEach,
	}
	if diff := cmp.Diff(want, calls.Counts); diff != "" {
		t.Errorf("calls of the process:\n%s", diff)
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	require.NoError(t, err)
	assert.Equal(t, strings.TrimSpace(string(comm)), calls.Process)
	require.NoError(t, node.Model.PostXID(0, 13))
	child.end()
}

// Sessions end when the driver is reloaded; a new one works in the same process.
func TestGoNVML_DriverReloaded_OldSessionsEnd(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	before := stat(t, node.Paths.Socket())
	child := start(t, node, "reload")
	var ret nvml.Return
	child.receive(&ret)
	require.Equal(t, nvml.SUCCESS, ret)
	child.resume()
	child.receive(&ret)
	require.Equal(t, nvml.SUCCESS, ret)

	node.UnloadDriver()
	assert.NoFileExists(t, filepath.Join(node.Paths.ProcDriver, "version"))
	child.resume()
	child.receive(&ret)
	require.Equal(t, nvml.ERROR_DRIVER_NOT_LOADED, ret)

	node.LoadDriver()
	child.resume()
	var steps []nvml.Return
	child.receive(&steps)
	child.end()
	want := []nvml.Return{nvml.ERROR_DRIVER_NOT_LOADED, nvml.SUCCESS, nvml.SUCCESS, nvml.SUCCESS, nvml.SUCCESS}
	assert.Equal(t, want, steps)
	assert.True(t, os.SameFile(before, stat(t, node.Paths.Socket())), "containers hold the socket's inode")
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info
}

func TestUpgradeDriver_LoadedLibrary_VersionMismatch(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	old, err := os.ReadFile(node.Library())
	require.NoError(t, err)
	node.UpgradeDriver("550.54.15")
	output, code := smi(t, node, "--query-gpu=driver_version", "--format=csv,noheader")
	assert.Equal(t, "550.54.15\n", output)
	assert.Zero(t, code)
	links, err := filepath.Glob(filepath.Join(node.LibraryDir(), "*580.95.05*"))
	require.NoError(t, err)
	assert.Empty(t, links)

	require.NoError(t, os.Remove(node.Library()))
	require.NoError(t, os.WriteFile(node.Library(), old, 0o755))
	output, code = smi(t, node, "-L")
	assert.Equal(t, "Failed to initialize NVML: Driver/library version mismatch\n", output)
	assert.Equal(t, 18, code)
}

func TestGoNVML_XID_WaitReturns(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	child := start(t, node, "xid")
	var registered bool
	child.receive(&registered)
	require.NoError(t, node.Model.PostXID(0, 48))
	require.NoError(t, node.Model.PostXID(1, 79))
	var got []any
	child.receive(&got)
	child.end()
	assert.Equal(t, []any{node.Model.Identities()[1].UUID, float64(nvml.EventTypeXidCriticalError), float64(79), float64(0xffffffff)}, got)
}

func TestGoNVML_Init_Refused(t *testing.T) {
	tests := map[string]struct {
		breakIt func(*sandbox.Node)
		want    nvml.Return
		count   int
	}{
		"driver unloaded":  {(*sandbox.Node).UnloadDriver, nvml.ERROR_DRIVER_NOT_LOADED, 0},
		"no control node":  {func(n *sandbox.Node) { n.RemoveDeviceNode("nvidiactl") }, nvml.ERROR_DRIVER_NOT_LOADED, 0},
		"one node missing": {func(n *sandbox.Node) { n.RemoveDeviceNode("nvidia0") }, nvml.SUCCESS, 1},
		"injected": {func(n *sandbox.Node) {
			_, err := n.Model.Faults.Add(model.Fault{Effect: model.EffectError, GPU: model.AnyGPU, Call: "nvmlInit*", Return: model.OperatingSystem})
			require.NoError(t, err)
		}, nvml.ERROR_OPERATING_SYSTEM, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := sandbox.Start(t, model.Uniform("node-a", "t4", 2))
			test.breakIt(node)
			child := start(t, node, "init")
			var ret nvml.Return
			var count int
			child.receive(&ret)
			child.receive(&count)
			child.end()
			assert.Equal(t, test.want, ret)
			assert.Equal(t, test.count, count)
		})
	}
}

// NVML works in a forked child, although other threads of the parent were
// inside calls.
func TestLibrary_Fork_BothProcessesCall(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	program := filepath.Join(t.TempDir(), "fork")
	output, err := exec.CommandContext(t.Context(), "gcc", "-O1", "-o", program, "testdata/fork.c", "-ldl", "-pthread").CombinedOutput()
	require.NoError(t, err, string(output))
	command := exec.CommandContext(t.Context(), "timeout", "60", program, node.Library())
	output, err = command.CombinedOutput()
	require.NoError(t, err, string(output))
	uuid := node.Model.Identities()[0].UUID
	assert.Equal(t, 21, strings.Count(string(output), "child "+uuid+"\n"))
	assert.Equal(t, 1, strings.Count(string(output), "parent "+uuid+"\n"))
}

func smi(t *testing.T, node *sandbox.Node, args ...string) (string, int) {
	t.Helper()
	return run(t, node, node.SMI(), args...)
}

func run(t *testing.T, node *sandbox.Node, program string, args ...string) (string, int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = []string{"LD_LIBRARY_PATH=" + node.LibraryDir()}
	output, err := command.CombinedOutput()
	if command.ProcessState == nil {
		require.NoError(t, err)
	}
	return string(output), command.ProcessState.ExitCode()
}

func TestSMI_Queries_Output(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	ids := node.Model.Identities()
	list := fmt.Sprintf("GPU 0: NVIDIA H100 80GB HBM3 (UUID: %s)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: %s)\n", ids[0].UUID, ids[1].UUID)
	tests := []struct {
		name string
		args []string
		want string
		code int
	}{
		{"list", []string{"-L"}, list, 0},
		{"query", []string{"--query-gpu=index,uuid,memory.total,compute_cap,pci.bus_id,fan.speed,power.draw", "--format=csv", "-i", "1"},
			"index, uuid, memory.total [MiB], compute_cap, pci.bus_id, fan.speed [%], power.draw [W]\n1, " + ids[1].UUID + ", 81559 MiB, 9.0, 00000000:43:00.0, [N/A], 69.00 W\n", 0},
		{"set compute mode", []string{"-i", ids[1].UUID, "-c", "EXCLUSIVE_PROCESS"}, "Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:43:00.0.\nAll done.\n", 0},
		{"read compute mode", []string{"--query-gpu=compute_mode", "--format=csv,noheader"}, "Default\nExclusive_Process\n", 0},
		{"set time-slice interval", []string{"compute-policy", "-i", "0", "--set-timeslice=3"}, "Successfully set timeslice policy with value Long for GPU 0\n", 0},
		{"no such GPU", []string{"-i", "7", "-c", "0"}, "No devices were found\n", 6},
		{"no such field", []string{"--query-gpu=colour", "--format=csv"}, "Field \"colour\" is not a valid field to query.\n\n", 2},
		{"no format", []string{"--query-gpu=index"}, "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n\n", 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			output, code := smi(t, node, test.args...)
			assert.Equal(t, test.want, output)
			assert.Equal(t, test.code, code)
		})
	}
	snapshot := node.Model.Snapshot()
	assert.Equal(t, model.ComputeExclusiveProcess, snapshot.GPUs[1].ComputeMode)
	assert.Equal(t, model.TimeSlice(3), snapshot.GPUs[0].TimeSlice)
	table, code := smi(t, node)
	assert.Zero(t, code)
	assert.Contains(t, table, "|   1  NVIDIA H100 80GB HBM3          Off |   00000000:43:00.0 Off |                    0 |\n")
	assert.Contains(t, table, "|       0MiB /  81559MiB |      0%   E. Process |\n")
}

// A GPU in MIG mode has no time-slice interval. Each run of the tool is counted as a process.
func TestSMI_TimeSlice_Set(t *testing.T) {
	node := sandbox.Start(t, model.Spec{Name: "node-a", Boards: []string{"h100-80", "a30", "t4"}, MIG: []int{1}})
	for _, c := range []struct {
		id, value, want string
		code            int
	}{
		{node.Model.Identities()[0].UUID, "2", "Successfully set timeslice policy with value Medium for GPU 0\n", 0},
		{"1", "2", "Failed to set timeslice policy with value Medium for GPU 1 : Not Supported\nFailed to set timeslice for requested devices : Not Supported\n", 3},
		{"2", "1", "Successfully set timeslice policy with value Short for GPU 2\n", 0},
	} {
		output, code := smi(t, node, "compute-policy", "-i", c.id, "--set-timeslice="+c.value)
		assert.Equal(t, c.want, output)
		assert.Equal(t, c.code, code)
	}
	gpus := node.Model.Snapshot().GPUs
	assert.Equal(t, []model.TimeSlice{2, 0, 1}, []model.TimeSlice{gpus[0].TimeSlice, gpus[1].TimeSlice, gpus[2].TimeSlice})
	runs := 0
	for _, p := range node.Model.Calls.List() {
		assert.Equal(t, "nvidia-smi", p.Process)
		runs += int(p.Counts["exportTableSetTimeSlice"])
	}
	assert.Equal(t, 3, runs)
	output, code := smi(t, node, "compute-policy", "--list")
	assert.Zero(t, code)
	assert.Contains(t, output, "|   0   Timeslice       Medium        |\n")

	node.UnloadDriver()
	node.LoadDriver()
	for _, g := range node.Model.Snapshot().GPUs {
		assert.Zero(t, g.TimeSlice, "a driver that was just loaded")
	}
}

func TestSMI_Failures_ExitCodes(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "t4", 2))
	_, err := node.Model.LoseGPU(1, time.Time{})
	require.NoError(t, err)
	output, code := smi(t, node, "-L")
	assert.Equal(t, fmt.Sprintf("GPU 0: Tesla T4 (UUID: %s)\nUnable to determine the device handle for gpu 1: GPU is lost.  Reboot the system to recover this GPU\n\n\n",
		node.Model.Identities()[0].UUID), output)
	assert.Equal(t, int(model.GPUIsLost), code)

	node.UnloadDriver()
	output, code = smi(t, node, "-L")
	assert.Equal(t, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n", output)
	assert.Equal(t, int(model.DriverNotLoaded), code)

	command := exec.CommandContext(t.Context(), node.SMI(), "-L")
	command.Env = []string{"LD_LIBRARY_PATH=/nonexistent"}
	text, err := command.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(text), "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.")
	assert.Equal(t, 12, command.ProcessState.ExitCode())
}

// silence is a logger that discards the messages of nvcdi.
type silence struct{}

func (silence) Debugf(string, ...interface{})   {}
func (silence) Errorf(string, ...interface{})   {}
func (silence) Infof(string, ...interface{})    {}
func (silence) Warningf(string, ...interface{}) {}
func (silence) Tracef(string, ...interface{})   {}

// nvcdi finds the files for containers in the driver root.
func TestNVCDI_DriverRoot_CommonEdits(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	library, err := nvcdi.New(
		nvcdi.WithMode(nvcdi.ModeNvml), nvcdi.WithDriverRoot(node.Root()), nvcdi.WithDevRoot(node.Root()),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils), nvcdi.WithLogger(silence{}),
	)
	require.NoError(t, err)
	edits, err := library.GetCommonEdits()
	require.NoError(t, err)
	mounts := map[string]bool{}
	for _, mount := range edits.Mounts {
		if mount.HostPath == "/dev/null" {
			continue
		}
		assert.Equal(t, filepath.Join(node.Root(), mount.ContainerPath), mount.HostPath)
		mounts[mount.ContainerPath] = true
	}
	libraries := "/" + layout.LibDir() + "/"
	for _, want := range []string{
		libraries + "libnvidia-ml.so.580.95.05", libraries + "libcuda.so.580.95.05", libraries + "libnvidia-ptxjitcompiler.so.580.95.05",
		"/usr/bin/nvidia-smi", "/usr/bin/nvidia-cuda-mps-control", "/run/nvidia-persistenced/socket",
		"/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin", "/etc/OpenCL/vendors/nvidia.icd",
	} {
		assert.True(t, mounts[want], "%s is not mounted; these are: %v", want, mounts)
	}
	var nodes []string
	for _, device := range edits.DeviceNodes {
		nodes = append(nodes, device.Path)
	}
	assert.ElementsMatch(t, []string{"/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}, nodes)
}

// Kubernetes' own library reads the PCIe root and the NUMA node.
func TestDeviceAttribute_Sysfs_PCIeRootAndNUMANode(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 8))
	sysfs := deviceattribute.WithFSFromRoot(filepath.Join(node.Root(), "sys"))
	for _, id := range node.Model.Identities() {
		root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(id.PCI.String(), sysfs)
		require.NoError(t, err)
		assert.Equal(t, id.PCIRoot, *root.Value.StringValue)
		numa, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(id.PCI.String(), deviceattribute.ScalarAttribute, sysfs)
		require.NoError(t, err)
		assert.Equal(t, int64(id.NUMA), *numa.Value.IntValue)
	}
}

func TestStart_Files_BelowRootAndRemoved(t *testing.T) {
	var root string
	t.Run("node", func(t *testing.T) {
		node := sandbox.Start(t, model.Uniform("node-a", "a100-80", 2))
		root = node.Root()
		information, err := os.ReadFile(filepath.Join(node.Paths.ProcDriver, "gpus/0000:1b:00.0/information"))
		require.NoError(t, err)
		assert.Contains(t, string(information), "GPU UUID: \t "+node.Model.Identities()[0].UUID)
		kinds := map[fs.FileMode]int{}
		require.NoError(t, filepath.WalkDir(root, func(_ string, entry fs.DirEntry, err error) error {
			kinds[entry.Type()]++
			return err
		}))
		assert.Equal(t, 12, kinds[fs.ModeDevice|fs.ModeCharDevice], "%v", kinds)
	})
	assert.NoDirExists(t, root)
}
