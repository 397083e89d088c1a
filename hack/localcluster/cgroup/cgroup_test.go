//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse_HybridMachine_AllHierarchies(t *testing.T) {
	const mountinfo = `20 1 254:0 / / rw - ext4 /dev/vda rw
29 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
30 29 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
31 29 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
31 29 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	assert.Equal(t, []Hierarchy{{Path: "/sys/fs/cgroup/cpu"}, {Path: "/sys/fs/cgroup/unified", Unified: true}}, parse(mountinfo))
}

func TestRemove_NestedGroups_OthersStay(t *testing.T) {
	trees := []Hierarchy{{Path: t.TempDir()}, {Path: t.TempDir()}}
	require.NoError(t, Create(trees, "/prism/a/n0"))
	require.NoError(t, Create(trees, "/prism/b/n0"))
	require.NoError(t, os.MkdirAll(filepath.Join(trees[0].Path, "prism/a/n0/kubepods/pod1/c1"), 0o755))
	require.NoError(t, Remove(trees, "/prism/a", time.Minute))
	RemoveEmpty(trees, "/prism")
	for _, tree := range trees {
		assert.NoDirExists(t, filepath.Join(tree.Path, "prism/a"))
		assert.DirExists(t, filepath.Join(tree.Path, "prism/b/n0"), "another cluster's groups stay")
	}
	require.NoError(t, Remove(trees, "/prism/b", time.Minute))
	RemoveEmpty(trees, "/prism")
	assert.NoDirExists(t, filepath.Join(trees[0].Path, "prism"))
	require.NoError(t, Remove(trees, "/prism/a", 0), "what is not there is removed")
}

func TestCreate_Processors_WeightOfClusters(t *testing.T) {
	trees := []Hierarchy{{Path: t.TempDir()}, {Path: t.TempDir(), Unified: true}, {Path: t.TempDir()}}
	files := []string{filepath.Join(trees[0].Path, "prism/cpu.shares"), filepath.Join(trees[1].Path, "prism/cpu.weight")}
	for _, file := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, nil, 0o644))
	}
	require.NoError(t, Create(trees, "/prism/a/n0"))
	for i, want := range []string{"4096", "400"} {
		weight, err := os.ReadFile(files[i])
		require.NoError(t, err)
		assert.Equal(t, want, string(weight))
	}
	assert.NoFileExists(t, filepath.Join(trees[2].Path, "prism/cpu.shares"), "a hierarchy of other controllers")
}
