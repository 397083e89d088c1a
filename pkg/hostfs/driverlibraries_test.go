package hostfs

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLibraries_Directory_OnlyThoseOfTheDriver(t *testing.T) {
	t.Parallel()
	const dir = "usr/lib/x86_64-linux-gnu"
	root := tree(t, join(install(dir, "580.95.05"), map[string]string{
		dir + "/libcuda.so.580.95.05": "ELF",
		dir + "/libcuda.so.1":         "->/" + dir + "/libcuda.so.580.95.05", // absolute in the driver root
		dir + "/libcuda.so.535.1.1":   "of an older driver",
		dir + "/libc.so.6":            "ELF",
		dir + "/libnvidia-gone.so.1":  "->libnvidia-gone.so.580.95.05",
		dir + "/nvidia.580.95.05":     "no library",
	}))
	driver, err := New(root).FindDriver("")
	require.NoError(t, err)
	found, err := driver.Libraries()
	require.NoError(t, err)
	file := func(name string) string { return filepath.Join(root, dir, name) }
	assert.Equal(t, map[string]string{
		"libnvidia-ml.so.580.95.05": file("libnvidia-ml.so.580.95.05"), "libnvidia-ml.so.1": file("libnvidia-ml.so.580.95.05"),
		"libcuda.so.580.95.05": file("libcuda.so.580.95.05"), "libcuda.so.1": file("libcuda.so.580.95.05"),
	}, found)

	driver.Version = ""
	found, err = driver.Libraries()
	require.NoError(t, err)
	assert.Equal(t, []string{
		"libcuda.so.1", "libcuda.so.535.1.1", "libcuda.so.580.95.05", "libnvidia-ml.so.1", "libnvidia-ml.so.580.95.05",
	}, slices.Sorted(maps.Keys(found)))
	driver.Library = filepath.Join(root, "gone", "libnvidia-ml.so.1")
	_, err = driver.Libraries()
	require.Error(t, err)
}
