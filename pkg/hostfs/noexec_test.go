package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestNoExec_MissingPath_NotFound(t *testing.T) {
	t.Parallel()
	_, err := New(t.TempDir()).NoExec("/missing")
	require.ErrorIs(t, err, gpu.ErrNotFound)
}

// In its own mount namespace, the test mounts like a container runtime: the host's root directory recursively, and a volume without the
// option.
func TestNoExec_MountOption_Reported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		flags uintptr
		want  bool
	}{"executable": {0, false}, "noexec": {unix.MS_NOEXEC, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, seen, volume := filepath.Join(dir, name, "root"), filepath.Join(dir, name, "seen"), filepath.Join(dir, name, "volume")
			state := filepath.Join(root, "var/state")
			for _, path := range []string{filepath.Dir(state), seen, volume} {
				require.NoError(t, os.MkdirAll(path, 0o755))
			}
			inOwnMounts(t, func() error {
				err := errors.Join(
					unix.Mount("var", filepath.Dir(state), "tmpfs", c.flags, ""), os.Mkdir(state, 0o755),
					unix.Mount(root, seen, "", unix.MS_BIND|unix.MS_REC, ""),
					unix.Mount("", seen, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
					unix.Mount(state, volume, "", unix.MS_BIND|unix.MS_REC, ""),
					unix.Mount("", volume, "", unix.MS_BIND|unix.MS_REMOUNT, ""),
				)
				if err != nil {
					return err
				}
				noexec, err := New(seen).NoExec("/var/state")
				assert.Equal(t, c.want, noexec)
				return err
			})
		})
	}
}

// inOwnMounts calls do on a thread with a mount namespace of its own; the test is skipped without the privilege to mount.
func inOwnMounts(t *testing.T, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its mount namespace end with this function
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	err := <-done
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting needs root")
	}
	require.NoError(t, err)
}
