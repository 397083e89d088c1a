package hostfs

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSockets_Pattern_OnlySockets(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "s") // the path of a socket is limited to 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	dir := filepath.Join(root, "var/plugins")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for _, name := range []string{"nvidia-mig.sock", "nvidia-gpu.sock", "kubelet.sock"} {
		listener, err := net.Listen("unix", filepath.Join(dir, name))
		require.NoError(t, err)
		defer func() { _ = listener.Close() }()
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidia-file.sock"), nil, 0o600))

	found, err := New(root).Sockets("/var/plugins", "nvidia-*.sock")
	require.NoError(t, err)
	assert.Equal(t, []string{"/var/plugins/nvidia-gpu.sock", "/var/plugins/nvidia-mig.sock"}, found)
	found, err = New(root).Sockets("/var/none", "*")
	require.NoError(t, err)
	assert.Empty(t, found)
	_, err = New(root).Sockets("/var/plugins", "[")
	require.ErrorContains(t, err, "listing sockets [ in /var/plugins: ")
	_, err = New(root).Sockets("/var/plugins/kubelet.sock", "*")
	require.ErrorContains(t, err, "listing sockets in /var/plugins/kubelet.sock: ")
}
