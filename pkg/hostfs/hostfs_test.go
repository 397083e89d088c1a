package hostfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// tree creates files below a new host root. A value that starts with "->" is the target of a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for path, content := range files {
		full := filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		if target, isLink := cutLink(content); isLink {
			require.NoError(t, os.Symlink(target, full))
			continue
		}
		require.NoError(t, os.WriteFile(full, []byte(content), 0o644))
	}
	return root
}

func cutLink(content string) (string, bool) {
	if len(content) > 2 && content[:2] == "->" {
		return content[2:], true
	}
	return "", false
}

func TestBootID_File_ContentOrError(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"proc/sys/kernel/random/boot_id": "6a1c0e5e-0000\n"})
	id, err := New(root).BootID()
	require.NoError(t, err)
	assert.Equal(t, "6a1c0e5e-0000", id)

	_, err = New(t.TempDir()).BootID()
	require.ErrorIs(t, err, gpu.ErrNotFound)
	require.EqualError(t, err, "reading the boot id: /proc/sys/kernel/random/boot_id: not found")

	_, err = New(tree(t, map[string]string{"proc/sys/kernel/random/boot_id": "\n"})).BootID()
	require.ErrorContains(t, err, "is empty")
}

func TestCharDevice_NotADevice_Refused(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"dev/file": "x", "dev/sub/file": "x", "dev/loop": "->loop"})
	host := New(root)

	_, err := host.CharDevice("/dev/nvidia0")
	require.ErrorIs(t, err, gpu.ErrNotFound)
	require.EqualError(t, err, "checking device node /dev/nvidia0: not found")

	_, err = host.CharDevice("/dev/file")
	require.EqualError(t, err, "checking device node /dev/file: it is a regular file, not a character device")
	_, err = host.CharDevice("/dev/sub")
	require.EqualError(t, err, "checking device node /dev/sub: it is a directory, not a character device")
	_, err = host.CharDevice("/dev/loop")
	require.Error(t, err)
}

func TestCharDevice_DevNull_Numbers(t *testing.T) {
	t.Parallel()
	// The null device exists on every Linux.
	node, err := New("/").CharDevice("/dev/null")
	require.NoError(t, err)
	assert.Equal(t, CharDevice{Path: "/dev/null", Major: 1, Minor: 3}, node)
}

func TestResolve_Links_StayBelowRoot(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"proc/sys/kernel/random/boot_id": "->/elsewhere",
		"elsewhere":                      "inside",
		"escape":                         "->../../../../../../../../dev/null",
	})
	id, err := New(root).BootID()
	require.NoError(t, err)
	assert.Equal(t, "inside", id)

	_, err = New(root).CharDevice("/escape")
	require.ErrorIs(t, err, gpu.ErrNotFound, "a link cannot leave the root")
}
