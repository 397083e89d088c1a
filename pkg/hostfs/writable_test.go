package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestWritable_MissingDirectory_NotFound(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	for _, path := range []string{"/missing", "/file"} {
		_, _, err := New(root).Writable(path)
		require.ErrorIs(t, err, gpu.ErrNotFound, path)
	}
}

// TestWritable_ReadOnlyRoot_ThatDirectoryAlone: the host's root is mounted read-only as in the chart's DaemonSet, and a link in it is absolute.
func TestWritable_ReadOnlyRoot_ThatDirectoryAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	host, seen := filepath.Join(dir, "host"), filepath.Join(dir, "seen")
	for _, path := range []string{filepath.Join(host, "run/cdi"), filepath.Join(host, "var"), seen} {
		require.NoError(t, os.MkdirAll(path, 0o755))
	}
	require.NoError(t, os.Symlink("/run", filepath.Join(host, "var/run")))
	spec := filepath.Join(host, "run/cdi/spec.json")
	require.NoError(t, os.WriteFile(spec, nil, 0o600))
	inOwnMounts(t, func() error {
		err := errors.Join(
			unix.Mount(host, seen, "", unix.MS_BIND|unix.MS_REC, ""), unix.Mount("", seen, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
		)
		if err != nil {
			return err
		}
		path, release, err := New(seen).Writable("/var/run/cdi")
		if err != nil {
			return err
		}
		defer release()
		require.ErrorIs(t, os.Remove(filepath.Join(seen, "run/cdi/spec.json")), unix.EROFS)
		assert.NoError(t, os.Remove(filepath.Join(path, "spec.json")))
		assert.NoFileExists(t, spec)
		return nil
	})
}
