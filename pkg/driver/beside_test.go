package driver

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

func TestDeviceNodesBesideGPUs(t *testing.T) {
	t.Parallel()
	there := map[string][]hostfs.CharDevice{
		"/dev/infiniband uverbs*": {{Path: "/dev/infiniband/uverbs0", Major: 231, Minor: 192}},
		"/dev/infiniband rdma_cm": {{Path: "/dev/infiniband/rdma_cm", Major: 10, Minor: 58}},
		"/dev gdrdrv":             {{Path: "/dev/gdrdrv", Major: 500}},
	}
	var flags *v1alpha1.NodeFlags
	var broken error
	told := make(nodeEvents, 16)
	b := &Beside{
		Flags: func() *v1alpha1.NodeFlags { return flags }, Events: told,
		CharDevices: func(dir, pattern string) ([]hostfs.CharDevice, error) { return there[dir+" "+pattern], broken },
	}
	assert.Empty(t, b.Nodes(), "no configuration")
	on, off := true, false
	flags = &v1alpha1.NodeFlags{GDSEnabled: &off, GDRCopyEnabled: &off}
	assert.Empty(t, b.Nodes())
	flags = &v1alpha1.NodeFlags{GDSEnabled: &off, MOFEDEnabled: &on, GDRCopyEnabled: &on}
	assert.Equal(t, []cdi.Node{
		{Path: "/dev/infiniband/uverbs0", HostPath: "/dev/infiniband/uverbs0", Major: 231, Minor: 192},
		{Path: "/dev/infiniband/rdma_cm", HostPath: "/dev/infiniband/rdma_cm", Major: 10, Minor: 58},
		{Path: "/dev/gdrdrv", HostPath: "/dev/gdrdrv", Major: 500},
	}, b.Nodes())
	assert.Empty(t, told)

	flags = &v1alpha1.NodeFlags{GDSEnabled: &on}
	const says = "Warning DeviceNodesMissing Prepare: Containers get no /dev/nvidia-fs*, which flags.gdsEnabled of the node's configuration wants: "
	for range 2 {
		there["/dev nvidia-fs*"] = nil
		assert.Empty(t, b.Nodes())
		assert.Empty(t, b.Nodes())
		assert.Equal(t, says+"there is none on the node; load the kernel module nvidia-fs or turn the flag off", <-told)
		there["/dev nvidia-fs*"] = []hostfs.CharDevice{{Path: "/dev/nvidia-fs0"}}
		assert.Len(t, b.Nodes(), 1)
		assert.Empty(t, told)
	}
	there, broken = nil, errBad
	assert.Empty(t, b.Nodes())
	assert.Equal(t, says+errBad.Error(), <-told)
}
