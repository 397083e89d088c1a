package port

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/bundle"
	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Sandbox is a whole GPU node below a temporary directory, which stands for the root of a host: driver files, device nodes,
// /proc and /sys. The library in it answers from Node, which a test can change.
type Sandbox struct {
	// Root is the directory.
	Root string
	// Node is the hardware.
	Node *model.Node

	install *layout.Install
}

// NewSandbox makes a node that lives until the test ends. Without gcc or the right to make device nodes the test is skipped.
func NewSandbox(t testing.TB, spec model.Spec) *Sandbox {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc, to build the simulated libnvidia-ml")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make device nodes in a temporary directory")
	}
	node, err := model.New(spec)
	require.NoError(t, err)
	// Not t.TempDir: its path is too long for a socket.
	root, err := os.MkdirTemp("", "simgpu-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	s := &Sandbox{Root: root, Node: node}
	s.install, err = layout.Create(layout.Sandbox(root), node, s.bundle(t, node.Spec().Driver))
	require.NoError(t, err)
	s.serve(t)
	return s
}

// bundle returns the built files of a driver.
func (s *Sandbox) bundle(t testing.TB, version model.DriverVersion) string {
	t.Helper()
	cache, err := bundle.CacheDir()
	require.NoError(t, err)
	dir, err := bundle.Ensure(context.Background(), cache, version)
	require.NoError(t, err)
	return dir
}

// serve answers the library until the test ends.
func (s *Sandbox) serve(t testing.TB) {
	t.Helper()
	server, err := daemon.Listen(s.install.Paths, s.Node)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
}

// Unload takes the kernel driver away, its files stay.
func (s *Sandbox) Unload(t testing.TB) {
	t.Helper()
	s.Node.Unload()
	require.NoError(t, s.install.UnloadProc())
}

// Load loads the kernel driver that fits the installed files.
func (s *Sandbox) Load(t testing.TB) {
	t.Helper()
	require.NoError(t, s.Node.Load(s.install.Spec.Driver))
	require.NoError(t, s.install.LoadProc(s.Node))
}

// Upgrade replaces the files of the driver, which must be unloaded, by another version.
func (s *Sandbox) Upgrade(t testing.TB, version model.DriverVersion) {
	t.Helper()
	require.NoError(t, s.install.Upgrade(version, s.bundle(t, version)))
}
