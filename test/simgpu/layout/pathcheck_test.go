package layout

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No path outside a sandbox is accepted on a machine: these tests run on one.
func TestCheck_HostPaths_Refused(t *testing.T) {
	outside := Sandbox("/srv/node")
	outside.Dev = "/dev"
	tests := map[string]Paths{
		"default paths":       Node("/run/nvidia/driver"),
		"own root, own /dev":  Node(t.TempDir()),
		"sandbox at /":        Sandbox("/"),
		"sandbox in /usr":     Sandbox("/usr/local/gpu"),
		"sandbox in /run":     Sandbox("/run/gpu"),
		"one path outside":    outside,
		"climbing out":        {Root: "/srv/node", Dev: "/srv/node/../../dev", ProcDriver: "/srv/node/p", PCI: "/srv/node/s", ProcDevices: "/srv/node/d"},
		"sibling with prefix": {Root: "/srv/node", Dev: "/srv/node-2/dev", ProcDriver: "/srv/node/p", PCI: "/srv/node/s", ProcDevices: "/srv/node/d"},
	}
	for name, paths := range tests {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, paths.Check(), errMachine)
		})
	}
	require.NoError(t, Sandbox("/srv/node").Check())
	require.NoError(t, Sandbox("/var/tmp/node").Check())
	require.ErrorContains(t, Sandbox("node").Check(), "the path must be absolute")
}

func TestCheck_SharedFilesystems_Refused(t *testing.T) {
	node := []mount{
		{"/", "ext4"}, {"/proc", "proc"}, {"/sys", "sysfs"}, {"/dev", "devtmpfs"}, {"/run", "tmpfs"},
		{"/proc/driver", "tmpfs"}, {"/sys/bus/pci/devices", "tmpfs"}, {"/dev", "tmpfs"},
	}
	require.NoError(t, Node("/run/nvidia/driver").ownDirs(node))
	require.ErrorContains(t, Node("/").ownDirs(node), "--root /usr is shared with the host")
	require.NoError(t, Node("/").ownDirs(append(node, mount{"/usr", "overlay"})))
	require.ErrorContains(t, Node("/opt/driver").ownDirs(node), "--root /opt/driver is shared")
	require.ErrorContains(t, Node("/run/nvidia/driver").ownDirs(node[:7]), "--dev /dev is shared")
	require.ErrorContains(t, Node("/run/nvidia/driver").ownDirs(node[:6]), "--dev /dev is shared")
	require.ErrorContains(t, Node("/opt/driver").ownDirs(append([]mount{{"/", "overlay"}}, node[1:]...)), "--root /opt/driver is shared")
	covered := append(node, mount{"/run", "ext4"})
	require.ErrorContains(t, Node("/run/nvidia/driver").ownDirs(covered), "--root /run/nvidia/driver is shared")
	assert.Equal(t, mount{"/run", "ext4"}, mountOf(covered, "/run/x"), "the last mount on a point counts")
	assert.Equal(t, "/", mountOf(node, "/runner").point)
}

func TestMajor_ProcDevices_FoundOrRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "devices")
	require.NoError(t, os.WriteFile(file, []byte(sandboxDevices), 0o644))
	number, err := major(file, "nvidia-uvm")
	require.NoError(t, err)
	assert.Equal(t, uint32(237), number)
	_, err = major(file, "nvidia-unknown")
	require.ErrorContains(t, err, "does not list it (bind a file over it that does)")
}

func TestMaker_Remove_OnlyCreatedFiles(t *testing.T) {
	dir := t.TempDir()
	theirs := filepath.Join(dir, "shared", "theirs")
	m := &maker{}
	require.NoError(t, os.Mkdir(filepath.Dir(theirs), 0o755))
	require.NoError(t, m.file(filepath.Join(dir, "shared", "sub", "ours"), "x", 0o444))
	require.NoError(t, m.link(filepath.Join(dir, "shared", "link"), "sub/ours"))
	require.NoError(t, m.file(filepath.Join(dir, "shared", "sub", "ours"), "again", 0o444))
	require.NoError(t, os.WriteFile(theirs, nil, 0o644))
	require.NoError(t, m.removeAll())
	entries, err := filepath.Glob(filepath.Join(dir, "shared", "*"))
	require.NoError(t, err)
	assert.Equal(t, []string{theirs}, entries)
	assert.Empty(t, m.Made)
}
