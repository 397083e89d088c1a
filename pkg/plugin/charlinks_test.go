package plugin

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// linkedHost is a host with /dev/char.
type linkedHost struct {
	ownDev
	made *[]hostfs.CharDevice
	err  *error
}

func (h linkedHost) LinkCharDevices(nodes []hostfs.CharDevice) error {
	*h.made = append(*h.made, nodes...)
	return *h.err
}

func newLinked(t *testing.T, missing ...string) (*wired, linkedHost) {
	t.Helper()
	n := newWired(t)
	host, _ := n.adapters.Host.(wiredHost)
	linked := linkedHost{ownDev{host, missing}, new([]hostfs.CharDevice), new(error)}
	n.adapters.Host = linked
	return n, linked
}

// TestPrepare_DeviceNodes_Linked: the device nodes of the driver and of the GPU are linked, if they exist, before a container can start.
func TestPrepare_DeviceNodes_Linked(t *testing.T) {
	t.Parallel()
	n, host := newLinked(t, "/dev/nvidia0")
	require.NoError(t, prepared(t.Context(), n.build(t), n.claim(t, "a", 0)))
	paths := map[string][2]uint32{}
	for _, node := range *host.made {
		paths[node.Path] = [2]uint32{node.Major, node.Minor}
	}
	for _, path := range gpu.ControlNodes {
		assert.Contains(t, paths, path)
	}
	assert.Equal(t, [2]uint32{195, 0}, paths[port.DriverRoot+"/dev/nvidia0"], paths)
	assert.NotContains(t, paths, "/dev/nvidia1")
}

// TestPrepare_LinksFail_PreparedAndLoggedOnce until another reason, or until they could be made.
func TestPrepare_LinksFail_PreparedAndLoggedOnce(t *testing.T) {
	t.Parallel()
	n, host := newLinked(t)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	logs := logger.GetSink().(ktesting.Underlier).GetBuffer().String
	p, err := Build(klog.NewContext(t.Context(), logger), n.cfg, n.adapters)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	rc := n.claim(t, "a", 0)
	for i, c := range []struct {
		err  error
		want int // lines
	}{{errors.New("first"), 1}, {errors.New("first"), 1}, {nil, 1}, {errors.New("first"), 2}, {errors.New("second"), 3}} {
		*host.err = c.err
		require.NoError(t, prepared(t.Context(), p, rc))
		assert.Equal(t, c.want, strings.Count(logs(), "Links in /dev/char are missing"), i)
	}
}
