package hook

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// shmFolder is the folder of shared memory in a container.
const shmFolder = "/dev/shm"

// keepShm keeps the pod's volume at /dev/shm in a container, and fails the container if the volume is smaller than the /dev/shm of MPS
// clients.
func (p Program) keepShm(s state, c *config, of client) error {
	if !c.hasShm(of.shm, p.hostIPC(s.Pid)) {
		return nil
	}
	size, err := p.uncoverShm(s, c, of.shm)
	switch {
	case err != nil:
		return fmt.Errorf("keeping the volume of the container at %s: %w", shmFolder, err)
	case size < of.shmSize:
		return fmt.Errorf("the pod's volume at %s has size %s, and a container that uses a GPU with MPS requires %s there: "+
			"set sizeLimit of the volume to %[3]s or more, or remove it from the container", shmFolder, quantity(size), quantity(of.shmSize))
	}
	return nil
}

// hostIPC reports whether the process shares this process's namespace of shared memory, which is the host's.
func (p Program) hostIPC(pid int) bool {
	own, err := os.Stat(filepath.Join(p.Proc, "self", "ns", "ipc"))
	if err != nil {
		return false
	}
	its, err := os.Stat(filepath.Join(p.Proc, strconv.Itoa(pid), "ns", "ipc"))
	return err == nil && os.SameFile(own, its)
}

// hasShm reports whether the pod mounts a volume at /dev/shm. Otherwise each container mounts the sandbox's file system there, whose path
// contains the name of the sandbox, or the host's if the pod uses the host's IPC namespace.
func (c *config) hasShm(ours string, hostIPC bool) bool {
	sandbox := c.annotation("io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID")
	if sandbox == "" {
		return false // an unknown runtime
	}
	return slices.ContainsFunc(c.Mounts, func(m mount) bool {
		switch bind := m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind"); {
		case path.Clean(m.Destination) != shmFolder || m.Source == ours || !bind:
			return false
		case m.Source == shmFolder && hostIPC:
			return false
		}
		return path.Base(m.Source) != "shm" || !slices.Contains(strings.Split(m.Source, "/"), sandbox)
	})
}

// uncoverShm unmounts the MPS clients' file system from the volume that it covers, and returns the size of the volume in bytes. The mounts
// are complete, and no process of the container runs yet.
func (p Program) uncoverShm(s state, c *config, shm string) (size uint64, err error) {
	var ours unix.Stat_t
	if err := unix.Stat(shm, &ours); err != nil {
		return 0, fmt.Errorf("opening %s: %w", shm, err)
	}
	namespace, err := os.Open(filepath.Join(p.Proc, strconv.Itoa(s.Pid), "ns", "mnt"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = namespace.Close() }()
	dir := c.Root.Path
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(s.Bundle, dir)
	}
	inside := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread exits with it, because it is in another namespace
		inside <- func() error {
			if err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS)); err != nil {
				return fmt.Errorf("entering the mount namespace of the container: %w", err)
			}
			size, err = uncover(dir, ours.Dev)
			return err
		}()
	}()
	err = <-inside
	return size, err
}

// uncover unmounts the file system of that device from /dev/shm below the root of the container.
func uncover(dir string, device uint64) (size uint64, err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening the root %q of the container: %w", dir, err)
	}
	r, err := checkRoot(fd, dir)
	if err != nil {
		return 0, err
	}
	defer r.close()
	top, err := r.openShm()
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(top) }()
	var of unix.Stat_t
	if err := unix.Fstat(top, &of); err != nil {
		return 0, err
	}
	if of.Dev != device {
		return 0, errors.New("the file system of MPS clients is not mounted over it")
	}
	if err := unix.Unmount("/proc/self/fd/"+strconv.Itoa(top), unix.MNT_DETACH); err != nil {
		return 0, fmt.Errorf("unmounting the file system of MPS clients: %w", err)
	}
	return r.shmSize()
}

func (r root) openShm() (int, error) {
	fd, err := r.open(shmFolder, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, fmt.Errorf("opening it: %w", err)
	}
	return fd, nil
}

// shmSize returns the size of the file system at /dev/shm in bytes; for a tmpfs without a size it is the maximum.
func (r root) shmSize() (uint64, error) {
	fd, err := r.openShm()
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, fmt.Errorf("reading its size: %w", err)
	}
	if fs.Blocks == 0 {
		return math.MaxUint64, nil
	}
	return fs.Blocks * uint64(max(fs.Bsize, 0)), nil
}

// quantity formats a number of bytes as a Kubernetes quantity.
func quantity(bytes uint64) string {
	for _, unit := range []struct {
		shift uint
		name  string
	}{{30, "Gi"}, {20, "Mi"}, {10, "Ki"}} {
		if n := bytes >> unit.shift; n > 0 && n<<unit.shift == bytes {
			return strconv.FormatUint(n, 10) + unit.name
		}
	}
	return strconv.FormatUint(bytes, 10)
}
