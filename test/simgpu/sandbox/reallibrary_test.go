package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/debian"
	"github.com/prism-gpu/prism/test/simgpu/abi"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// realLibrary returns NVIDIA's library with that name from a package of a Debian release, and its version. It is unpacked into the user's
// cache, not installed. The test is skipped if the library is not available, or would find a driver. As root libnvidia-ml creates a missing
// /dev/nvidiactl, also without a kernel module: so it runs only if the tests use their own /dev.
func realLibrary(t *testing.T, pack, name, release string) (library string, version model.DriverVersion) {
	t.Helper()
	if _, err := os.Stat("/sys/module/nvidia"); err == nil {
		t.Skip("this machine has NVIDIA's driver, and the answers without it are compared")
	}
	if !sandbox.IsGPUMachine() {
		t.Skip("NVIDIA's libnvidia-ml makes device nodes: this needs root, for a mount namespace with a /dev of its own")
	}
	dir, err := debian.Package{Name: "debian-" + pack + "-" + release, Package: pack, Release: release}.Unpacked(t.Context(), !testing.Short())
	if err != nil {
		t.Skipf("NVIDIA's %s is not available: %v", name, err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "usr/lib/*/nvidia/current", name+".so.*.*"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0], model.DriverVersion(strings.TrimPrefix(filepath.Base(found[0]), name+".so."))
}

// answers lists the answers of a library's functions, from a program that is compiled from testdata.
func answers(t *testing.T, library string, calls []string) []string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "calls")
	output, err := exec.CommandContext(t.Context(), "gcc", "-O1", "-o", program, "testdata/calls.c", "-ldl").CombinedOutput()
	require.NoError(t, err, string(output))
	command := exec.CommandContext(t.Context(), program, library)
	command.Stdin = strings.NewReader(strings.Join(calls, "\n") + "\n")
	output, err = command.CombinedOutput()
	require.NoError(t, err, string(output))
	return strings.Split(strings.TrimSpace(string(output)), "\n")
}

// requireSame compares NVIDIA's library with the simulated one of its version on a node whose driver is unloaded.
func requireSame(t *testing.T, pack, name, release string, calls func(model.DriverVersion) []string) (answered []string) {
	t.Helper()
	library, version := realLibrary(t, pack, name, release)
	node := sandbox.Start(t, model.Spec{Name: "node-a", Boards: []string{"h100-80"}, Driver: version})
	node.UnloadDriver()
	want := answers(t, library, calls(version))
	assert.Equal(t, want, answers(t, filepath.Join(node.LibraryDir(), name+".so.1"), calls(version)))
	return want
}

// TestRealNVML_NoModule_SameAnswers: without a kernel module every function of the simulated library answers like NVIDIA's: before an
// initialisation, after one that failed and after a shutdown, with arguments and without.
func TestRealNVML_NoModule_SameAnswers(t *testing.T) {
	for _, release := range []string{"bookworm", "trixie"} {
		t.Run(release, func(t *testing.T) {
			answered := requireSame(t, "libnvidia-ml1", "libnvidia-ml", release, func(version model.DriverVersion) (calls []string) {
				var each []string
				for _, symbol := range abi.Symbols() {
					elsewhere := symbol.Place == abi.Hidden || symbol.Name == "nvmlErrorString" || symbol.Name == "nvmlInternalGetExportTable"
					if !elsewhere && symbol.In(version) {
						each = append(each, symbol.Name, "-"+symbol.Name)
					}
				}
				for _, state := range []string{"nvmlInit_v2", "nvmlShutdown", "nvmlShutdown"} {
					calls = append(append(calls, each...), state)
				}
				return calls
			})
			assert.Greater(t, len(answered), 200, "functions that are compared")
			assert.Contains(t, answered, "nvmlShutdown: 0", "without an initialisation")
		})
	}
}

// TestRealCUDA_NoModule_SameAnswers: the same for libcuda, before cuInit and after it has failed.
func TestRealCUDA_NoModule_SameAnswers(t *testing.T) {
	for _, release := range []string{"bookworm", "trixie"} {
		t.Run(release, func(t *testing.T) {
			answered := requireSame(t, "libcuda1", "libcuda", release, func(model.DriverVersion) (calls []string) {
				for _, function := range []string{
					"DriverGetVersion", "CtxCreate_v2", "CtxDestroy_v2", "DevicePrimaryCtxRetain", "DevicePrimaryCtxRelease_v2", "CtxSetCurrent",
					"CtxGetCurrent", "CtxSynchronize", "ProfilerStart", "ProfilerStop", "MemAlloc_v2", "MemFree_v2", "MemGetInfo_v2", "DeviceGetCount",
					"DeviceGet", "DeviceGetName", "DeviceTotalMem_v2", "DeviceGetUuid_v2", "DeviceGetAttribute",
				} {
					calls = append(calls, "cu"+function, "-cu"+function)
				}
				return append(append(slices.Clone(calls), "-cuInit"), calls...)
			})
			assert.Contains(t, answered, "-cuInit: 100")
		})
	}
}
