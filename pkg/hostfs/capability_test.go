package hostfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const devices = `Character devices:
  1 mem
195 nvidia
236 nvidia-caps-imex-channels
237 nvidia-caps

Block devices:
  8 sd
`

// capabilities returns the files of one MIG device: compute instance 1 of GPU instance 3 on GPU 2.
func capabilities() map[string]string {
	const instance = "proc/driver/nvidia/capabilities/gpu2/mig/gi3"
	return map[string]string{
		"proc/devices":           devices,
		instance + "/access":     "DeviceFileMinor: 300\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
		instance + "/ci1/access": "DeviceFileMode: 292\nDeviceFileMinor: 302\n",
	}
}

func TestMIGNodes_Instances_NumbersOfTheKernel(t *testing.T) {
	t.Parallel()
	want := []CharDevice{
		{Path: "/dev/nvidia-caps/nvidia-cap300", Major: 237, Minor: 300}, {Path: "/dev/nvidia-caps/nvidia-cap302", Major: 237, Minor: 302},
	}
	host := New(tree(t, capabilities()))
	nodes, err := host.MIGNodes(2, 3, 1)
	require.NoError(t, err, "a node that does not exist yet is no error")
	assert.Equal(t, want, nodes)
	for _, absent := range [][3]int{{2, 3, 0}, {2, 4, 1}, {0, 3, 1}} {
		_, err := host.MIGNodes(absent[0], absent[1], absent[2])
		require.ErrorIs(t, err, gpu.ErrNotFound)
	}
	_, err = host.MIGNodes(2, 3, 0)
	require.EqualError(t, err, "reading a MIG capability: /proc/driver/nvidia/capabilities/gpu2/mig/gi3/ci0/access: not found")
}

func TestMIGMonitorNode_Capability_FoundWherePresent(t *testing.T) {
	t.Parallel()
	files := map[string]string{"proc/devices": devices}
	_, err := New(tree(t, files)).MIGMonitorNode()
	require.ErrorIs(t, err, gpu.ErrNotFound, "no GPU with MIG")
	files["proc/driver/nvidia/capabilities/mig/monitor"] = "DeviceFileMinor: 2\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
	node, err := New(tree(t, files)).MIGMonitorNode()
	require.NoError(t, err)
	assert.Equal(t, CharDevice{Path: "/dev/nvidia-caps/nvidia-cap2", Major: 237, Minor: 2}, node)
	files["proc/devices"] = "Character devices:\n195 nvidia\n"
	_, err = New(tree(t, files)).MIGMonitorNode()
	require.ErrorIs(t, err, gpu.ErrNotFound, "a driver that has no capabilities")
}

func TestMIGNodes_InvalidFiles_Refused(t *testing.T) {
	t.Parallel()
	const access = "proc/driver/nvidia/capabilities/gpu2/mig/gi3/access"
	for name, c := range map[string]struct {
		file, content string
		want          string
	}{
		"no such driver": {
			"proc/devices", "Character devices:\n195 nvidia\n\nBlock devices:\n237 nvidia-caps\n",
			"finding nvidia-caps in /proc/devices: not found; reload the NVIDIA kernel module",
		},
		"no number of the driver": {"proc/devices", "x nvidia-caps\n", `reading /proc/devices: strconv.ParseUint: parsing "x": invalid syntax`},
		"no minor":                {access, "DeviceFileMode: 292\n", "reading /" + access + ": it contains no DeviceFileMinor"},
		"no number":               {access, "DeviceFileMinor: -1\n", "reading /" + access + `: strconv.ParseUint: parsing "-1": invalid syntax`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := capabilities()
			files[c.file] = c.content
			_, err := New(tree(t, files)).MIGNodes(2, 3, 1)
			require.EqualError(t, err, c.want)
		})
	}
	files := capabilities()
	delete(files, "proc/devices")
	_, err := New(tree(t, files)).MIGNodes(2, 3, 1)
	require.EqualError(t, err, "reading the major numbers of device drivers: /proc/devices: not found")
}

// Programs on the host would open another device.
func TestMIGNodes_NodeWithOtherNumbers_Refused(t *testing.T) {
	t.Parallel()
	root := tree(t, capabilities())
	node := filepath.Join(root, "dev/nvidia-caps/nvidia-cap302")
	require.NoError(t, os.MkdirAll(filepath.Dir(node), 0o755))
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Skipf("device nodes cannot be created: %v", err)
	}
	_, err := New(root).MIGNodes(2, 3, 1)
	require.EqualError(t, err, "checking device node /dev/nvidia-caps/nvidia-cap302: its numbers are 1:3, but the kernel reports 237:302; remove it and run "+
		"nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu2/mig/gi3/ci1/access")
}
