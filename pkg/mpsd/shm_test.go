package mpsd

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Root of a container may create, replace and remove entries of its /dev/shm.
func TestStart_InjectionDirectoryOfClient_Replaced(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	host := t.TempDir()
	kept := filepath.Join(host, "kept")
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	require.NoError(t, os.Chmod(host, 0o700))
	m.ensure(m.service())
	path := m.dir().injection()
	for name, entry := range map[string]func() error{
		"none":            func() error { return nil },
		"link":            func() error { return os.Symlink(host, path) },
		"link to nothing": func() error { return os.Symlink(filepath.Join(host, "absent"), path) },
		"file":            func() error { return os.WriteFile(path, nil, 0o600) },
		"directory": func() error {
			if err := os.MkdirAll(filepath.Join(path, "a"), 0o755); err != nil {
				return err
			}
			if err := os.Symlink(host, filepath.Join(path, "a", "link")); err != nil {
				return err
			}
			return os.Chown(path, 1000, 1000)
		},
	} {
		for _, p := range m.processes() {
			require.NoError(t, Linux{}.Kill(p))
			m.await(p)
		}
		require.NoError(t, Linux{}.Unmount(path))
		require.NoError(t, os.RemoveAll(path))
		require.NoError(t, entry(), name)
		m.ensure(m.service())
		assert.Equal(t, "700", mode(t, host), name)
		assert.FileExists(t, kept, name)
		assert.NoFileExists(t, filepath.Join(host, "absent"), name)
		assert.True(t, isMount(path), name)
		entries, err := os.ReadDir(m.dir().shm())
		require.NoError(t, err)
		assert.Len(t, entries, 1, name)
	}
	m.stop(m.service())
}

// A container that runs during a restart of the daemon keeps its directory.
func TestInjectionDirectory_Mounted_NothingCanReplaceIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	daemon := m.ensure(s)
	path := m.dir().injection()
	require.ErrorIs(t, os.WriteFile(filepath.Join(path, "a"), nil, 0o600), syscall.EROFS)
	require.ErrorIs(t, os.Rename(path, path+"-moved"), syscall.EBUSY)
	require.ErrorIs(t, unix.Rmdir(path), syscall.EBUSY)
	require.NoError(t, syscall.Kill(daemon.PID, syscall.SIGKILL))
	before, err := os.Stat(path)
	require.NoError(t, err)
	m.eventually(func() bool { return m.ensure(s).PID != daemon.PID })
	after, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after))
	m.stop(s)
}

// Empty files do not count toward the size: 300,000 of them in a tmpfs of 1 MiB took 300 MB of the kernel's memory.
func TestMount_EmptyFiles_Limited(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	m.ensure(m.service())
	var err error
	for i := 0; i <= 4096 && err == nil; i++ {
		err = os.WriteFile(filepath.Join(m.dir().shm(), strconv.Itoa(i)), nil, 0o600)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	m.stop(m.service())
}

// An earlier service mounted it without a limit, for containers that still run.
func TestStart_MountedWithoutLimitOfFiles_Limited(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	daemon := m.ensure(s)
	require.NoError(t, unix.Mount("tmpfs", m.dir().shm(), "tmpfs", shmFlags|unix.MS_REMOUNT, "nr_inodes=100000"))
	require.NoError(t, syscall.Kill(daemon.PID, syscall.SIGKILL))
	m.eventually(func() bool { return m.ensure(s).PID != daemon.PID })
	assert.Contains(t, mountOptions(t, os.Getpid(), m.dir().shm()), "nr_inodes=4096")
	m.stop(s)
}

func TestShmFiles_Size_OneForEach16KiB(t *testing.T) {
	t.Parallel()
	assert.Equal(t, int64(4096), shmFiles(1<<20))
	assert.Equal(t, int64(65536), shmFiles(1<<30))
}

func TestIsMount_LinkToAnotherFileSystem_False(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink("/proc/self", link))
	assert.False(t, isMount(link))
	assert.True(t, isMount("/proc"))
}
