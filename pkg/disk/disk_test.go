package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// refusing is the real disk, but the named operation fails.
type refusing struct {
	OS
	operation string
}

var errRefused = errors.New("refused")

func (r refusing) Rename(from, to string) error {
	if r.operation == "rename" {
		return errRefused
	}
	return r.OS.Rename(from, to)
}

func (r refusing) Write(path string, data []byte, perm fs.FileMode, durable bool) error {
	if r.operation == "write" {
		return errors.Join(r.OS.Write(path, data[:1], perm, durable), errRefused)
	}
	return r.OS.Write(path, data, perm, durable)
}

func TestReplace_Fails_OldContentStays(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{"write", "rename"} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			require.NoError(t, Replace(OS{}, path, []byte("old"), 0o600, true))
			require.ErrorIs(t, Replace(refusing{operation: operation}, path, []byte("new"), 0o600, true), errRefused)

			content, err := OS{}.Read(path)
			require.NoError(t, err)
			assert.Equal(t, "old", string(content))
			names, err := OS{}.List(filepath.Dir(path))
			require.NoError(t, err)
			assert.Equal(t, []string{"file"}, names, "no temporary file is left")
		})
	}
}

func TestWrite_ContentThere_Replaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"", "long content", "short", ""} {
		for _, durable := range []bool{false, true} {
			require.NoError(t, OS{}.Write(path, []byte(content), 0o600, durable))
			got, err := OS{}.Read(path)
			require.NoError(t, err)
			assert.Equal(t, content, string(got))
		}
	}
}

func TestReplace_Permissions_Set(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, Replace(OS{}, path, []byte("x"), 0o600, false))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
}

func TestRemoveAndList_Absent_NoError(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "absent")
	require.NoError(t, OS{}.Remove(filepath.Join(dir, "file")))
	names, err := OS{}.List(dir)
	require.NoError(t, err)
	assert.Empty(t, names)
}

// A removed file must not stay open, or its space is never freed.
func TestRemove_File_SpaceFreed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("content"), 0o600))
	require.NoError(t, OS{}.Remove(path))
	require.NoFileExists(t, path)
	holds := func() bool {
		open, err := filepath.Glob("/proc/self/fd/*")
		require.NoError(t, err)
		for _, fd := range open {
			if target, err := os.Readlink(fd); err == nil && target == path+" (deleted)" {
				return true
			}
		}
		return false
	}
	assert.Eventually(t, func() bool { return !holds() }, time.Minute, 10*time.Millisecond)
}
