package disk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestRemoveDir_LinksInIt_NotFollowed: what is elsewhere stays, wherever links lead.
func TestRemoveDir_LinksInIt_NotFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	elsewhere := filepath.Join(dir, "elsewhere")
	require.NoError(t, os.MkdirAll(filepath.Join(elsewhere, "kept"), 0o755))
	at := filepath.Join(dir, "parent", "claim")
	require.NoError(t, os.MkdirAll(filepath.Join(at, "below"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(at, "below", "file"), nil, 0o600))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(at, "absolute")))
	require.NoError(t, os.Symlink("../../elsewhere", filepath.Join(at, "relative")))
	require.NoError(t, OS{}.RemoveDir(at))
	assert.NoDirExists(t, at)
	assert.DirExists(t, filepath.Join(elsewhere, "kept"))

	require.NoError(t, os.Symlink(elsewhere, at))
	require.NoError(t, OS{}.RemoveDir(at), "a link in its place")
	_, err := os.Lstat(at)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.DirExists(t, filepath.Join(elsewhere, "kept"))
}

func TestRemoveDir_NotThere_NoError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, OS{}.RemoveDir(filepath.Join(dir, "claim")))
	require.NoError(t, OS{}.RemoveDir(filepath.Join(dir, "missing", "claim")))
	require.Error(t, OS{}.RemoveDir(filepath.Join(dir, "missing", "..", "file", "..", "..", "\x00")))
}

// TestEmptied_FileMadeMeanwhile_RemovedAgain: the exporter may write a claim's file while its directory is removed.
func TestEmptied_FileMadeMeanwhile_RemovedAgain(t *testing.T) {
	t.Parallel()
	notEmpty := &os.PathError{Op: "unlinkat", Path: "claim", Err: unix.ENOTEMPTY}
	for name, c := range map[string]struct {
		fails    int
		err      error
		removals int
		left     error
	}{
		"once": {1, notEmpty, 2, nil}, "each time": {9, notEmpty, 3, unix.ENOTEMPTY}, "another error": {9, os.ErrPermission, 1, os.ErrPermission},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			err := emptied(func() error {
				if calls++; calls <= c.fails {
					return c.err
				}
				return nil
			})
			require.ErrorIs(t, err, c.left)
			assert.Equal(t, c.removals, calls)
		})
	}
}
