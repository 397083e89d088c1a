package hostfs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGraphicsNodes_ModuleOrNone_PathsOfTheGPU(t *testing.T) {
	t.Parallel()
	const gpus, real = "sys/bus/pci/devices/", "sys/devices/pci0000:3a/0000:3b:00.0"
	host := New(tree(t, map[string]string{
		gpus + "0000:3b:00.0":                "->../../../devices/pci0000:3a/0000:3b:00.0",
		real + "/drm/renderD129/uevent":      "",
		real + "/drm/card1/card1-DP-1/edid":  "",
		real + "/drm/controlD65/uevent":      "",
		gpus + "0000:5b:00.0/vendor":         "0x10de",
		gpus + "0000:5b:00.0/drm_dp_aux0/id": "",
	}))
	nodes, err := host.GraphicsNodes("0000:3b:00.0")
	require.NoError(t, err)
	assert.Equal(t, []string{"/dev/dri/card1", "/dev/dri/renderD129"}, nodes)
	for _, without := range []string{"0000:5b:00.0", "0000:7b:00.0"} {
		nodes, err := host.GraphicsNodes(without)
		require.NoError(t, err)
		assert.Empty(t, nodes, without)
	}
}
