// Package sandbox puts a simulated GPU node into a test: driver root, device
// nodes and NVML socket in a temporary directory, the daemon in the test's own
// process. Production go-nvml loads Node.Library without knowing.
//
// A process binds the first libnvidia-ml that it loads for good: tests that
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
}

// Start makes a node that ends with the test. It skips the test where device
// nodes cannot be made (not root, not Linux) or gcc is missing.
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

// LibraryDir is where the driver's libraries are.
func (n *Node) LibraryDir() string { return filepath.Join(n.Root(), layout.LibDir()) }

// SMI is the path of our nvidia-smi.
func (n *Node) SMI() string { return filepath.Join(n.Root(), "usr/bin/nvidia-smi") }

// UnloadDriver takes the kernel module away.
func (n *Node) UnloadDriver() {
	n.t.Helper()
	n.Model.Unload()
	require.NoError(n.t, n.install.UnloadProc())
}

// LoadDriver brings the installed driver back.
func (n *Node) LoadDriver() {
	n.t.Helper()
	require.NoError(n.t, errors.Join(n.Model.Load(n.install.Spec.Driver), n.install.LoadProc(n.Model)))
}

// UpgradeDriver unloads, installs another version and loads it.
func (n *Node) UpgradeDriver(version model.DriverVersion) {
	n.t.Helper()
	n.UnloadDriver()
	n.ReplaceDriver(version)
	n.LoadDriver()
}

// ReplaceDriver puts another version's files in place of an unloaded driver's.
func (n *Node) ReplaceDriver(version model.DriverVersion) {
	n.t.Helper()
	built, err := bundle.Ensure(n.t.Context(), n.bundles, version)
	require.NoError(n.t, err)
	require.NoError(n.t, n.install.Upgrade(version, built))
}

// RemoveDeviceNode takes a file out of Paths.Dev: "nvidia0".
func (n *Node) RemoveDeviceNode(name string) {
	n.t.Helper()
	require.NoError(n.t, n.install.RemoveDeviceNode(name))
}

// RestoreDeviceNodes brings all device nodes back.
func (n *Node) RestoreDeviceNodes() {
	n.t.Helper()
	require.NoError(n.t, n.install.RestoreDeviceNodes(n.Model))
}
