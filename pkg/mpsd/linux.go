package mpsd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// processes reads processes in the PID namespace of this process, which is the host's.
var processes = hostfs.New("/")

// Linux implements System on the machine.
type Linux struct{}

// MakeDir does not depend on the umask.
func (Linux) MakeDir(path string, perm fs.FileMode) error { return disk.OS{}.MakeDir(path, perm) }

// MakeFIFO creates it for root only.
func (Linux) MakeFIFO(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return &fs.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return nil
}

// Write is not durable: the files are in /run.
func (Linux) Write(path string, data []byte) error {
	return disk.Replace(disk.OS{}, path, data, 0o600, false)
}

// Link keeps an existing link to the same file: rename would leave both names.
func (Linux) Link(from, to string) error {
	tmp := to + disk.TempSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if sameFile(from, to) {
		return nil
	}
	if err := os.Link(from, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, to)
}

func sameFile(a, b string) bool {
	first, err := os.Lstat(a)
	if err != nil {
		return false
	}
	second, err := os.Lstat(b)
	return err == nil && os.SameFile(first, second)
}

// Symlink calls os.Symlink.
func (Linux) Symlink(target, path string) error { return os.Symlink(target, path) }

// Remove cannot remove a directory that is a mount point: unmount it first.
func (Linux) Remove(path string) error { return os.RemoveAll(path) }

// shmFlags are the mount flags of the tmpfs that clients use as /dev/shm.
const shmFlags = unix.MS_NOEXEC | unix.MS_NOSUID | unix.MS_NODEV

// A tmpfs may contain one file for each shmBytesPerFile of its size, but at least shmLeastFiles. Empty files do not count toward its size,
// but each takes about 1 KiB of the kernel's memory.
const shmLeastFiles, shmBytesPerFile = 4096, 16 << 10

// shmFiles returns the number of files that a tmpfs of that size may contain.
func shmFiles(bytes int64) int64 { return max(shmLeastFiles, bytes/shmBytesPerFile) }

// Mount creates a tmpfs that every user may write to.
func (Linux) Mount(path string, bytes int64, mounted bool) error {
	flags := uintptr(shmFlags)
	if mounted {
		flags |= unix.MS_REMOUNT
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", flags, fmt.Sprintf("mode=1777,size=%d,nr_inodes=%d", bytes, shmFiles(bytes))); err != nil {
		return &fs.PathError{Op: "mounting a tmpfs at", Path: path, Err: err}
	}
	return nil
}

// ReplaceByDir renames an entry before it removes it: others may add files to it meanwhile, and remaining files take space only in their
// own filesystem.
func (Linux) ReplaceByDir(parent, name string) error {
	root, err := os.OpenRoot(parent)
	if err != nil {
		return err
	}
	defer root.Close()
	aside := "." + rand.Text()
	if err := root.Rename(name, aside); err == nil {
		_ = root.RemoveAll(aside)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.Mkdir(name, 0o755)
}

// MountEmpty mounts on the directory that it has opened.
func (Linux) MountEmpty(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = unix.Mount("tmpfs", fmt.Sprintf("/proc/self/fd/%d", fd), "tmpfs", shmFlags|unix.MS_RDONLY, "mode=755,size=4k")
	}
	if err != nil {
		return &fs.PathError{Op: "mounting an empty tmpfs at", Path: path, Err: err}
	}
	return nil
}

// Unmount removes the mounts from the mount namespace of this process, and from namespaces to which mounts propagate.
func (Linux) Unmount(path string) error {
	for isMount(path) {
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
	return nil
}

// isMount reports whether another filesystem is mounted at the directory.
func isMount(path string) bool {
	var here, above unix.Stat_t
	// For a link, ".." would be the parent of its target.
	if unix.Lstat(path, &here) != nil || here.Mode&unix.S_IFMT != unix.S_IFDIR || unix.Lstat(path+"/..", &above) != nil {
		return false
	}
	return here.Dev != above.Dev
}

// Start starts the program in its own process group and mount namespace. Mounts of this process propagate into the namespace until the
// program changes that.
func (Linux) Start(c Command) (*Started, error) {
	// The process also holds the write end, so its stdin never ends.
	stdin, err := os.OpenFile(c.Stdin, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	log, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := &exec.Cmd{
		Path: c.Path, Args: c.Args, Env: c.Env, Dir: "/", Stdin: stdin, Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNS},
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	process, running := processes.Process(command.Process.Pid)
	exit := make(chan syscall.WaitStatus, 1)
	go func() {
		_ = command.Wait() // ProcessState contains the result
		status, _ := command.ProcessState.Sys().(syscall.WaitStatus)
		exit <- status
	}()
	if !running {
		process.PID = command.Process.Pid
	}
	return &Started{Process: process, Exit: exit}, nil
}

// outputLimit is the number of bytes that are kept of a program's output.
const outputLimit = 64 << 10

// Run keeps the first outputLimit bytes.
func (Linux) Run(ctx context.Context, c Command) (printed string, code int, err error) {
	output := &limited{}
	command := exec.CommandContext(ctx, c.Path)
	command.Args, command.Env, command.Dir = c.Args, c.Env, "/"
	command.Stdin, command.Stdout = strings.NewReader(c.Input), output
	command.WaitDelay = time.Second
	err = command.Run()
	if ctx.Err() != nil && err != nil {
		return "", 0, context.Cause(ctx)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return output.kept.String(), exit.ExitCode(), nil
	}
	return output.kept.String(), 0, err
}

// limited keeps the first outputLimit bytes that are written to it. It has no other method: a buffer's own ReadFrom keeps all.
type limited struct{ kept bytes.Buffer }

// Write discards what exceeds the limit and always succeeds.
func (l *limited) Write(p []byte) (int, error) {
	_, _ = l.kept.Write(p[:min(max(0, outputLimit-l.kept.Len()), len(p))])
	return len(p), nil
}

// Kill does not kill another process that has got the PID since.
func (Linux) Kill(p hostfs.Process) error {
	fd, running, err := open(p)
	if err != nil || !running {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing process %d: %w", p.PID, err)
	}
	return nil
}

// open returns a pidfd of the process, false if it has exited.
func open(p hostfs.Process) (fd int, running bool, err error) {
	fd, err = unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("opening process %d: %w", p.PID, err)
	}
	// The pidfd refers to the process if the PID is still its own.
	if now, exists := processes.Process(p.PID); !exists || now != p {
		return 0, false, unix.Close(fd)
	}
	return fd, true, nil
}

// exited returns a channel that is closed when the process has exited.
func exited(p hostfs.Process) (<-chan struct{}, error) {
	done := make(chan struct{})
	fd, running, err := open(p)
	if err != nil {
		return nil, err
	}
	if !running {
		close(done)
		return done, nil
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	go func() {
		defer close(done)
		defer file.Close()
		// The runtime waits for the descriptor without a thread.
		_ = raw.Read(func(fd uintptr) bool {
			polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
			n, err := unix.Poll(polled, 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
	}()
	return done, nil
}
