package download_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inNamespace is set in a process with its own mount namespace.
const inNamespace = "PRISM_TEST_MOUNTS"

// TestFetch_FullOrReadOnlyFolder_SaysWhatToChange mounts a small file system, in a mount namespace of its own.
func TestFetch_FullOrReadOnlyFolder_SaysWhatToChange(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		again(t)
		return
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	s := &source{content: bytes.Repeat([]byte("x"), 1<<20)}
	r := reportOf(s.content)
	d := downloads(t, s, dir)
	_, _, err := d.Fetch(t.Context(), r, "x.nsys-rep")
	require.EqualError(t, err, "writing "+filepath.Join(dir, partOf(r))+": no space left on device; free space, or choose another directory with "+
		"--output; 65536 bytes are kept in "+filepath.Join(dir, partOf(r))+", and the next download resumes from there")
	assert.Equal(t, 1, s.asked, "a full disk is no reason to ask again")

	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=4m"))
	_, _, err = d.Fetch(t.Context(), r, "x.nsys-rep")
	require.NoError(t, err, "with free space the download goes on")

	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	_, _, err = d.Fetch(t.Context(), r, "y.nsys-rep")
	require.ErrorContains(t, err, "read-only file system; choose a writable directory with --output")
}

// again runs the test in a new mount namespace, and in a user namespace if required.
func again(t *testing.T) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	command.Env = append(os.Environ(), inNamespace+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
