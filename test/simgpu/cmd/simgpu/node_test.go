package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// A node with default paths is created only inside its own namespaces, and leaves them unchanged.
func TestCreate_DefaultPaths_OwnNamespacesOnly(t *testing.T) {
	needNode(t)
	self, err := os.Executable()
	require.NoError(t, err)
	mine, err := os.Readlink("/proc/self/ns/mnt")
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), "sh", "testdata/node.sh", self, mine)
	command.Env = append(os.Environ(), asCommand+"=1", "XDG_CACHE_HOME="+cache)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	output, err := command.CombinedOutput()
	if err != nil && strings.Contains(err.Error(), "operation not permitted") {
		t.Skip("needs the right to make namespaces")
	}
	require.NoError(t, err, string(output))

	expected, err := model.New(model.Uniform("n1", "h100-80", 2))
	require.NoError(t, err)
	list := ""
	for i, id := range expected.Identities() {
		list += "GPU " + string(rune('0'+i)) + ": NVIDIA H100 80GB HBM3 (UUID: " + id.UUID + ")\n"
	}
	first, rest, _ := strings.Cut(string(output), "\n")
	assert.Equal(t, "== refused: simgpu: creating a GPU node with root /run/nvidia/driver and devices in /dev: "+
		"this is the host itself, not a node (run inside a node's namespaces, or use --sandbox)", first)
	second, rest, _ := strings.Cut(rest, "\n")
	assert.Regexp(t, "^== refused: simgpu: creating a GPU node: --(dev|pci) [a-z/]+ is shared with the host, a node needs a tmpfs or an overlay there$", second)
	want := "node n1: 2 × NVIDIA H100 80GB HBM3, driver 580.95.05, below /run/nvidia/driver\n" +
		"== numa 0\n== kernel shown\n== uvm ed 1\n" + list + list +
		"== left: \n== mounts 0\n" +
		`== kept {"name":"n1","driver":"580.95.05","boards":["h100-80","h100-80"],"minors":[0,1]}` + "\n"
	assert.Equal(t, want, rest)
}
