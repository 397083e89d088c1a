package pcie

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestPCI_Sysfs_RootAndNUMANode(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for device, numaNode := range map[string]string{
		"pci0000:3a/0000:3a:00.0/0000:3b:00.0": "1\n", "pci0000:5a/0000:5b:00.0": "-1\n", "pci0000:6a/0000:6b:00.0": "",
	} {
		dir, links := filepath.Join(root, "sys/devices", device), filepath.Join(root, "sys/bus/pci/devices")
		require.NoError(t, os.MkdirAll(links, 0o755))
		require.NoError(t, os.Symlink(filepath.Join("../../../devices", device), filepath.Join(links, filepath.Base(device))))
		if numaNode != "" {
			require.NoError(t, os.MkdirAll(dir, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "numa_node"), []byte(numaNode), 0o600))
		}
	}
	host := New(root)
	for busID, want := range map[string]gpu.PCI{
		"0000:3b:00.0": {BusID: "0000:3b:00.0", Root: "pci0000:3a", NUMANode: 1},
		"0000:5b:00.0": {BusID: "0000:5b:00.0", Root: "pci0000:5a", NUMANode: -1},
		"0000:6b:00.0": {BusID: "0000:6b:00.0", Root: "pci0000:6a", NUMANode: -1},
		"0000:99:00.0": {BusID: "0000:99:00.0", NUMANode: -1},
		"":             {NUMANode: -1},
	} {
		assert.Equal(t, want, host.PCI(busID), busID)
	}
}
