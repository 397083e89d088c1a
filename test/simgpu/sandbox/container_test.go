package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// container is a root directory with libc and the files that CDI adds to a
// container: library, tool, socket and some device nodes.
func container(t *testing.T, node *sandbox.Node, devices ...string) string {
	t.Helper()
	// Below the node's root, so that the socket can be linked.
	root := filepath.Join(node.Root(), "containers", strings.ReplaceAll(strings.Join(devices, "-"), "/", "-"))
	for _, file := range libc(t, node.SMI()) {
		place(t, file, root+file)
	}
	place(t, node.SMI(), root+"/usr/bin/nvidia-smi")
	place(t, node.Library(), filepath.Join(root, layout.LibDir(), "libnvidia-ml.so.1"))
	socket := root + "/run/nvidia-persistenced/socket"
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	require.NoError(t, os.Link(node.Paths.Socket(), socket))
	require.NoError(t, os.MkdirAll(root+"/dev", 0o755))
	for _, name := range devices {
		var st unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Join(node.Paths.Dev, name), &st))
		made := filepath.Join(root, "dev", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(made), 0o755))
		require.NoError(t, unix.Mknod(made, st.Mode, int(st.Rdev)))
	}
	return root
}

// libc lists the loader and libraries that a program needs.
func libc(t *testing.T, program string) []string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "ldd", program).Output()
	require.NoError(t, err)
	var files []string
	for word := range strings.FieldsSeq(string(output)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	return files
}

func place(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o755))
}

func inContainer(t *testing.T, root string, args ...string) (string, int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "/usr/bin/nvidia-smi", args...)
	command.Dir = "/"
	command.Env = []string{}
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	output, err := command.CombinedOutput()
	if command.ProcessState == nil {
		require.NoError(t, err)
	}
	return string(output), command.ProcessState.ExitCode()
}

// A container sees the GPUs of its device nodes, and shares their state with the node.
func TestContainer_DeviceNodes_DecideVisibleGPUs(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 3))
	ids := node.Model.Identities()
	line := func(index, gpu int) string {
		return fmt.Sprintf("GPU %d: NVIDIA H100 80GB HBM3 (UUID: %s)\n", index, ids[gpu].UUID)
	}
	tests := map[string]struct {
		devices []string
		want    string
		code    int
	}{
		"one GPU":         {[]string{"nvidiactl", "nvidia1"}, line(0, 1), 0},
		"two GPUs":        {[]string{"nvidiactl", "nvidia2", "nvidia0"}, line(0, 0) + line(1, 2), 0},
		"no GPU":          {[]string{"nvidiactl"}, "No devices found.\n", 0},
		"no control node": {[]string{"nvidia0"}, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n", 9},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			output, code := inContainer(t, container(t, node, test.devices...), "-L")
			assert.Equal(t, test.want, output)
			assert.Equal(t, test.code, code)
		})
	}

	root := container(t, node, "nvidiactl", "nvidia2")
	_, code := inContainer(t, root, "-c", "EXCLUSIVE_PROCESS")
	require.Zero(t, code)
	assert.Equal(t, model.ComputeExclusiveProcess, node.Model.Snapshot().GPUs[2].ComputeMode)

	node.UnloadDriver()
	node.LoadDriver()
	output, _ := inContainer(t, root, "--query-gpu=compute_mode", "--format=csv,noheader")
	assert.Equal(t, "Default\n", output, "the socket of a running container outlives a driver reload")
}

// A container sees the MIG devices with the nodes of both instances; the host sees all.
func TestContainer_CapabilityNodes_DecideVisibleMIGDevices(t *testing.T) {
	node := sandbox.Start(t, model.Spec{Name: "node-a", Boards: []string{"a30", "a30"}, MIG: []int{0, 1}})
	makeMIGDevices(t, node, 0, 5, 14) // 2g.12gb is GPU instance 1, 1g.6gb is 5
	makeMIGDevices(t, node, 1, 14)
	_, code := smi(t, node, "-L") // the first call after a change creates the nodes
	require.Zero(t, code)
	snapshot := node.Model.Snapshot()
	line := func(index, gpu int) string {
		return fmt.Sprintf("GPU %d: NVIDIA A30 (UUID: %s)\n", index, snapshot.GPUs[gpu].UUID)
	}
	device := func(index, gpu, at int, profile string) string {
		return fmt.Sprintf("  MIG %-11s Device %2d: (UUID: %s)\n", profile, index, snapshot.GPUs[gpu].MIGDevices[at].UUID)
	}
	caps := func(gpu int, gi uint32) []string {
		return []string{
			layout.CapabilityNode(model.GPUInstanceCapability(gpu, gi)), layout.CapabilityNode(model.ComputeInstanceCapability(gpu, gi, 0)),
		}
	}
	with := func(devices ...string) []string { return append([]string{"nvidiactl", "nvidia0"}, devices...) }
	big, small, other := caps(0, 1), caps(0, 5), caps(1, 3)
	tests := map[string]struct {
		devices []string
		want    string
	}{
		"one device":             {with(small...), line(0, 0) + device(0, 0, 1, "1g.6gb")},
		"the other device":       {with(big...), line(0, 0) + device(0, 0, 0, "2g.12gb")},
		"two devices":            {with(append(small, big...)...), line(0, 0) + device(0, 0, 0, "2g.12gb") + device(1, 0, 1, "1g.6gb")},
		"no device":              {with(), line(0, 0)},
		"GPU instance alone":     {with(small[0]), line(0, 0)},
		"compute instance alone": {with(small[1]), line(0, 0)},
		"halves of two devices":  {with(small[0], big[1]), line(0, 0)},
		"device of another GPU":  {with(other...), line(0, 0)},
		"a device, not its GPU":  {append([]string{"nvidiactl", "nvidia1"}, small...), line(0, 1)},
		"devices on two GPUs":    {with(append(small, append(other, "nvidia1")...)...), line(0, 0) + device(0, 0, 1, "1g.6gb") + line(1, 1) + device(0, 1, 0, "1g.6gb")},
		"the monitor capability": {with("nvidia-caps/nvidia-cap2"), line(0, 0) + device(0, 0, 0, "2g.12gb") + device(1, 0, 1, "1g.6gb")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			output, code := inContainer(t, container(t, node, test.devices...), "-L")
			assert.Equal(t, test.want, output)
			assert.Zero(t, code)
		})
	}
}
