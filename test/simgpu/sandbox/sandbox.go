// Package sandbox runs a simulated GPU node in a test: driver root, device
// nodes and NVML socket in a temporary directory, the daemon in the test's own
// process. Production go-nvml loads Node.Library like a real driver's.
//
// A process keeps the first libnvidia-ml that it loads: tests that
// use go-nvml on several nodes need a child process for each.
package sandbox

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/bundle"
	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Node is a running simulated node.
type Node struct {
	Model *model.Node
	Paths layout.Paths

	t       testing.TB
	install *layout.Install
	bundles string
	bundle  string
}

// Start starts a node that the end of the test removes. It skips the test if device nodes cannot be created (not root, not Linux) or gcc is
// missing.
func Start(t testing.TB, spec model.Spec) *Node {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("a simulated GPU node needs root on Linux, to make device nodes")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("a simulated GPU node needs gcc, to build its libnvidia-ml")
	}
	bundles, err := bundle.CacheDir()
	require.NoError(t, err)
	n := &Node{t: t, bundles: bundles}
	n.Model, err = model.New(spec)
	require.NoError(t, err)
	n.lay()
	n.serve()
	return n
}

func (n *Node) lay() {
	built, err := bundle.Ensure(n.t.Context(), n.bundles, n.Model.Spec().Driver)
	require.NoError(n.t, err)
	n.bundle = built
	// Not t.TempDir: with the test's name in it, a socket path gets too long.
	root, err := os.MkdirTemp("", "simgpu-")
	require.NoError(n.t, err)
	n.t.Cleanup(func() { os.RemoveAll(root) })
	n.Paths = layout.Sandbox(root)
	n.install, err = layout.Create(n.Paths, n.Model, built)
	require.NoError(n.t, err)
}

func (n *Node) serve() {
	served, err := daemon.Listen(n.Paths, n.Model)
	require.NoError(n.t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- served.Run(ctx) }()
	n.t.Cleanup(func() {
		stop()
		require.NoError(n.t, <-done)
	})
}

// Root is the driver root.
func (n *Node) Root() string { return n.Paths.Root }

// Library is the path of libnvidia-ml.so.1.
func (n *Node) Library() string { return filepath.Join(n.LibraryDir(), "libnvidia-ml.so.1") }

// LibraryDir is the directory of the driver's libraries.
func (n *Node) LibraryDir() string { return filepath.Join(n.Root(), layout.LibDir()) }

// SMI is the path of the simulated nvidia-smi.
func (n *Node) SMI() string { return filepath.Join(n.Root(), "usr/bin/nvidia-smi") }

// Programs is the directory of the driver's programs.
func (n *Node) Programs() string { return filepath.Join(n.Root(), "usr/bin") }

// GPUMem is the path of the program that allocates GPU memory.
func (n *Node) GPUMem() string { return filepath.Join(n.bundle, bundle.ToolDir, bundle.GPUMem) }

// GPULoad is the path of the program that works on a GPU.
func (n *Node) GPULoad() string { return filepath.Join(n.bundle, bundle.ToolDir, bundle.GPULoad) }

// UnloadDriver unloads the kernel module.
func (n *Node) UnloadDriver() {
	n.t.Helper()
	n.Model.Unload()
	require.NoError(n.t, n.install.UnloadProc())
}

// LoadDriver loads the installed driver.
func (n *Node) LoadDriver() {
	n.t.Helper()
	require.NoError(n.t, errors.Join(n.Model.Load(n.install.Spec.Driver), n.install.LoadProc(n.Model)))
}

// LoadDriverFirst loads the installed driver as after a boot: loads are counted from the first again.
func (n *Node) LoadDriverFirst() {
	n.t.Helper()
	n.install.CountLoads()
	require.NoError(n.t, n.Model.CountLoads(0))
	n.LoadDriver()
}

// UpgradeDriver unloads, installs another version and loads it.
func (n *Node) UpgradeDriver(version model.DriverVersion) {
	n.t.Helper()
	n.UnloadDriver()
	n.ReplaceDriver(version)
	n.LoadDriver()
}

// ReplaceDriver installs another version in place of an unloaded driver.
func (n *Node) ReplaceDriver(version model.DriverVersion) {
	n.t.Helper()
	built, err := bundle.Ensure(n.t.Context(), n.bundles, version)
	require.NoError(n.t, err)
	require.NoError(n.t, n.install.Upgrade(version, built))
}

// RemoveDeviceNode removes a device node from Paths.Dev: "nvidia0".
func (n *Node) RemoveDeviceNode(name string) {
	n.t.Helper()
	require.NoError(n.t, n.install.RemoveDeviceNode(name))
}

// RestoreDeviceNodes creates all missing device nodes.
func (n *Node) RestoreDeviceNodes() {
	n.t.Helper()
	require.NoError(n.t, n.install.RestoreDeviceNodes(n.Model))
}
