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

// TestCgroup_NotVersionTwo_NotFound: hosts with cgroup v1 use the same names for directories.
func TestCgroup_NotVersionTwo_NotFound(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := New(root)
	assert.False(t, f.UnifiedCgroups(), "no /sys")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/fs/cgroup/kubepods"), 0o755))
	assert.False(t, f.UnifiedCgroups(), "another file system")
	for path, want := range map[string]string{
		"/kubepods": "/sys/fs/cgroup/kubepods is not a cgroup v2 directory:  not found",
		"/gone":     "/sys/fs/cgroup/gone: not found",
		"/../..":    "is not a cgroup v2 directory:  not found",
	} {
		_, err := f.Cgroup(path)
		require.ErrorIs(t, err, gpu.ErrNotFound)
		require.ErrorContains(t, err, want)
	}
}

// TestCgroup_VersionTwo_Found mounts cgroup v2 like hosts, in a mount namespace of its own.
func TestCgroup_VersionTwo_Found(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	mount := filepath.Join(root, "sys/fs/cgroup")
	require.NoError(t, os.MkdirAll(mount, 0o755))
	inOwnMounts(t, func() error {
		if err := unix.Mount("cgroup2", mount, "cgroup2", 0, ""); err != nil {
			return err
		}
		f := New(root)
		assert.True(t, f.UnifiedCgroups())
		seen, err := f.Cgroup("/")
		assert.NoError(t, err)
		assert.Equal(t, mount, seen)
		for _, path := range []string{"/gone", "/cgroup.procs", "/../../../etc"} { // missing, a file, and not below the mount
			_, err = f.Cgroup(path)
			assert.ErrorIs(t, err, gpu.ErrNotFound, path)
		}
		return nil
	})
}
