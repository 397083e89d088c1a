package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var linkedDevices = []CharDevice{{Path: "/dev/nvidia0", Major: 195}, {Path: "/run/nvidia/driver/dev/nvidiactl", Major: 195, Minor: 255}}

// links lists the entries of a directory: the targets of links, and "file" for other files.
func links(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	found := map[string]string{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			target = "file"
		}
		found[e.Name()] = target
	}
	return found
}

// TestLinkCharDevices_Missing_MadeOnce, also by several processes at once. Existing entries are kept: a link to another device, a dangling
// link, another file.
func TestLinkCharDevices_Missing_MadeOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, charDir)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { assert.NoError(t, New(root).LinkCharDevices(linkedDevices)) })
	}
	all.Wait()
	want := map[string]string{"195:0": "/dev/nvidia0", "195:255": "/run/nvidia/driver/dev/nvidiactl"}
	assert.Equal(t, want, links(t, dir))

	for _, there := range []string{"../nvidia7", "/missing"} {
		require.NoError(t, os.Remove(filepath.Join(dir, "195:0")))
		require.NoError(t, os.Symlink(there, filepath.Join(dir, "195:0")))
		require.NoError(t, New(root).LinkCharDevices(linkedDevices))
		want["195:0"] = there
		assert.Equal(t, want, links(t, dir))
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "195:0")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "195:0"), nil, 0o600))
	require.NoError(t, New(root).LinkCharDevices(linkedDevices))
	want["195:0"] = "file"
	assert.Equal(t, want, links(t, dir))
}

// TestLinkCharDevices_NoDirectory_NothingMade: a host without udev. A file with that name is not replaced either.
func TestLinkCharDevices_NoDirectory_NothingMade(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, New(root).LinkCharDevices(linkedDevices))
	assert.NoDirExists(t, filepath.Join(root, "dev"))
	require.NoError(t, os.Mkdir(filepath.Join(root, "dev"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, charDir), nil, 0o600))
	require.NoError(t, New(root).LinkCharDevices(linkedDevices))
	assert.FileExists(t, filepath.Join(root, charDir))
}

// TestLinkCharDevices_ReadOnlyRoot_Made: a runtime may mount all of the host's root read-only in the plugin's container.
func TestLinkCharDevices_ReadOnlyRoot_Made(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, charDir)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	inOwnMounts(t, func() error {
		if err := errors.Join(
			unix.Mount(root, root, "", unix.MS_BIND, ""), unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
		); err != nil {
			return err
		}
		return New(root).LinkCharDevices(linkedDevices)
	})
	assert.Equal(t, map[string]string{"195:0": "/dev/nvidia0", "195:255": "/run/nvidia/driver/dev/nvidiactl"}, links(t, dir))
}

// TestLinkCharDevices_Fails_OthersMade: the error says which link is missing.
func TestLinkCharDevices_Fails_OthersMade(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, charDir), 0o755))
	long := CharDevice{Path: string(make([]byte, 5)), Major: 1}
	err := New(root).LinkCharDevices(append([]CharDevice{long}, linkedDevices...))
	require.EqualError(t, err, "creating the link /dev/char/1:0 to \x00\x00\x00\x00\x00: invalid argument")
	assert.Len(t, links(t, filepath.Join(root, charDir)), 2)
}
