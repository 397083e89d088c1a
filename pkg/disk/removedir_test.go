package disk

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestRemoveDir_LinksInIt_NotFollowed: the targets of links stay.
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

// TestRemoveDir_Nested_FewFilesOpen: a process with write access to a directory can nest directories in it without limit.
func TestRemoveDir_Nested_FewFilesOpen(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "claim")
	require.NoError(t, os.Mkdir(at, 0o755))
	in, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	const depth = 3000
	for range depth {
		require.NoError(t, unix.Mkdirat(in, "nested", 0o755))
		file, err := unix.Openat(in, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
		require.NoError(t, err)
		require.NoError(t, unix.Close(file))
		next, err := unix.Openat(in, "nested", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(in))
		in = next
	}
	require.NoError(t, unix.Close(in))
	require.NoError(t, os.MkdirAll(filepath.Join(at, ".removed-1", "a"), 0o755), "the name of a directory on its way")

	top, err := os.Open(at)
	require.NoError(t, err)
	defer top.Close()
	visited, open := 0, 0
	require.NoError(t, Empty(top, 4*depth, func(*os.File, string) {
		visited++
		if visited%500 == 0 {
			open = max(open, belowOf(t, at))
		}
	}))
	assert.Equal(t, depth, visited)
	assert.LessOrEqual(t, open, 3, "files below the directory that are open at once")
	require.NoError(t, OS{}.RemoveDir(at))
	assert.NoDirExists(t, at)
}

// belowOf counts the open files of this process in a directory or below it.
func belowOf(t *testing.T, dir string) (count int) {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, name := range names {
		if to, err := os.Readlink("/proc/self/fd/" + name.Name()); err == nil && strings.HasPrefix(to, dir+"/") {
			count++
		}
	}
	return count
}

func TestEmpty_MoreThanLimit_NextCallGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 25 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	top, err := os.Open(dir)
	require.NoError(t, err)
	defer top.Close()
	for _, left := range []int{15, 5} {
		require.ErrorIs(t, Empty(top, 10, nil), ErrManyEntries)
		names, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, names, left)
	}
	require.NoError(t, Empty(top, 10, nil))
}
