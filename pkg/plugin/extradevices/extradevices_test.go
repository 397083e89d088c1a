package extradevices

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/test/fakes"
)

var errBad = errors.New("input/output error")

func TestNodes_Requested_MissingOnesReportedOnce(t *testing.T) {
	t.Parallel()
	there := map[string][]hostfs.CharDevice{
		"/dev/infiniband uverbs*": {{Path: "/dev/infiniband/uverbs0", Major: 231, Minor: 192}},
		"/dev/infiniband rdma_cm": {{Path: "/dev/infiniband/rdma_cm", Major: 10, Minor: 58}},
		"/dev gdrdrv":             {{Path: "/dev/gdrdrv", Major: 500}},
	}
	var flags *v1alpha1.NodeFlags
	var broken error
	written := make(fakes.Events, 16)
	f := &Finder{
		Flags: func() *v1alpha1.NodeFlags { return flags }, Events: written,
		CharDevices: func(dir, pattern string) ([]hostfs.CharDevice, error) { return there[dir+" "+pattern], broken },
	}
	assert.Empty(t, f.Nodes(), "no configuration")
	on, off := true, false
	flags = &v1alpha1.NodeFlags{GDSEnabled: &off, GDRCopyEnabled: &off}
	assert.Empty(t, f.Nodes())
	flags = &v1alpha1.NodeFlags{GDSEnabled: &off, MOFEDEnabled: &on, GDRCopyEnabled: &on}
	assert.Equal(t, []cdi.DeviceNode{
		{Path: "/dev/infiniband/uverbs0", HostPath: "/dev/infiniband/uverbs0", Major: 231, Minor: 192},
		{Path: "/dev/infiniband/rdma_cm", HostPath: "/dev/infiniband/rdma_cm", Major: 10, Minor: 58},
		{Path: "/dev/gdrdrv", HostPath: "/dev/gdrdrv", Major: 500},
	}, f.Nodes())
	assert.Empty(t, written)

	flags = &v1alpha1.NodeFlags{GDSEnabled: &on}
	const says = "Warning DeviceNodesMissing Prepare: Containers get no /dev/nvidia-fs*, which flags.gdsEnabled of the node's configuration requests: "
	for range 2 {
		there["/dev nvidia-fs*"] = nil
		assert.Empty(t, f.Nodes())
		assert.Empty(t, f.Nodes())
		assert.Equal(t, says+"the node does not have it; load the kernel module nvidia-fs or turn the flag off", <-written)
		there["/dev nvidia-fs*"] = []hostfs.CharDevice{{Path: "/dev/nvidia-fs0"}}
		assert.Len(t, f.Nodes(), 1)
		assert.Empty(t, written)
	}
	there, broken = nil, errBad
	assert.Empty(t, f.Nodes())
	assert.Equal(t, says+errBad.Error(), <-written)
}

// TestMounts_GDS_DriverRootBeforeHost: there are mounts only if the device nodes exist.
func TestMounts_GDS_DriverRootBeforeHost(t *testing.T) {
	t.Parallel()
	var nodes []hostfs.CharDevice
	there := map[string]string{"/ /run/udev": "/run/udev", "/ /etc/cufile.json": "/etc/cufile.json"}
	flags := &v1alpha1.NodeFlags{}
	f := &Finder{
		Flags:       func() *v1alpha1.NodeFlags { return flags },
		CharDevices: func(string, string) ([]hostfs.CharDevice, error) { return nodes, nil },
		Locate:      func(root, path string) (string, bool) { found, ok := there[root+" "+path]; return found, ok },
	}
	paths := func() map[string]string {
		found := map[string]string{}
		for _, m := range f.Mounts("/run/nvidia/driver") {
			assert.Contains(t, m.Options, "ro")
			found[m.ContainerPath] = m.HostPath
		}
		return found
	}
	nodes = []hostfs.CharDevice{{Path: "/dev/nvidia-fs0"}}
	assert.Empty(t, paths(), "not wanted")
	flags.GDSEnabled = new(true)
	assert.Equal(t, map[string]string{"/run/udev": "/run/udev", "/etc/cufile.json": "/etc/cufile.json"}, paths())
	there["/run/nvidia/driver /etc/cufile.json"] = "/run/nvidia/driver/etc/cufile.json"
	delete(there, "/ /run/udev")
	assert.Equal(t, map[string]string{"/etc/cufile.json": "/run/nvidia/driver/etc/cufile.json"}, paths())
	nodes = nil
	assert.Empty(t, paths(), "the kernel module is not loaded")
}
