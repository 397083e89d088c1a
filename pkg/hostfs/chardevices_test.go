package hostfs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCharDevices_Pattern_OnlyCharacterDevices(t *testing.T) {
	t.Parallel()
	found, err := New("/").CharDevices("/dev", "[nz][ue][lr][lo]")
	require.NoError(t, err)
	assert.Equal(t, []CharDevice{{Path: "/dev/null", Major: 1, Minor: 3}, {Path: "/dev/zero", Major: 1, Minor: 5}}, found)

	host := New(tree(t, map[string]string{"dev/gdrdrv": "a file", "dev/nvidia-fs0": "->/dev/null"}))
	for _, pattern := range []string{"gdrdrv", "nvidia-fs*", "none"} {
		found, err = host.CharDevices("/dev", pattern)
		require.NoError(t, err)
		assert.Empty(t, found, pattern)
	}
	found, err = host.CharDevices("/dev/infiniband", "*")
	require.NoError(t, err)
	assert.Empty(t, found)
	_, err = host.CharDevices("/dev", "[")
	require.ErrorContains(t, err, "listing device nodes [ in /dev: ")
	_, err = host.CharDevices("/dev/gdrdrv", "*")
	require.ErrorContains(t, err, "listing device nodes in /dev/gdrdrv: ")
}
