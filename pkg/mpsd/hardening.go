package mpsd

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Hardening says which rights of the container control daemons and their servers lose. They run as root, and clients send them commands.
type Hardening string

// Values of Hardening.
const (
	// HardeningNone removes no rights.
	HardeningNone Hardening = "None"
	// HardeningMounts leaves only the driver's files and device nodes, and the daemon's own directory. System calls that change mounts or
	// the kernel fail.
	HardeningMounts Hardening = "Mounts"
	// HardeningFull also removes capabilities and further system calls.
	HardeningFull Hardening = "Full"
)

// Hardenings lists all values.
var Hardenings = []Hardening{HardeningFull, HardeningMounts, HardeningNone}

// mountTree hides directories except for some files. All paths are paths of this process, and do not change.
type mountTree struct {
	// Hidden directories become empty.
	Hidden []string `json:"hidden"`
	// Kept are files and directories in hidden directories that stay. Missing ones are ignored.
	Kept []string `json:"kept"`
	// Dev is the directory whose NVIDIA device nodes appear in /dev.
	Dev string `json:"dev"`
}

// driverSockets are directories below the driver's root with sockets of the driver's services.
var driverSockets = []string{"/run/nvidia-persistenced", "/run/nvidia-fabricmanager"}

// mountTree returns the mounts for a daemon.
func (d *daemon) mountTree(installed driver) (mountTree, error) {
	libraries, err := installed.root.Libraries()
	if err != nil {
		return mountTree{}, err
	}
	host := d.service.Host
	tree := mountTree{Kept: slices.Sorted(maps.Values(libraries))}
	tree.Kept = append(slices.Compact(tree.Kept), string(d.dir), installed.control, filepath.Join(installed.serverDir, serverProgram))
	for _, directory := range driverSockets {
		if path, err := host.Resolve(filepath.Join(installed.root.HostPath, directory)); err == nil {
			tree.Kept = append(tree.Kept, path)
		}
	}
	if tree.Dev, err = host.Resolve(filepath.Join(installed.root.DevHostPath, "dev")); err != nil {
		return mountTree{}, err
	}
	root, err := host.Resolve("/")
	if err != nil {
		return mountTree{}, err
	}
	for _, path := range []string{root, filepath.Dir(d.service.Dir)} {
		if path != "/" {
			tree.Hidden = append(tree.Hidden, path)
		}
	}
	return tree, nil
}

// standardNodes are the device nodes in the /dev of every container.
var standardNodes = []string{"null", "zero", "full", "random", "urandom"}

// standardLinks are the links in the /dev of every container.
var standardLinks = map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}

// clone is a detached mount of a file or directory, with the mounts below it.
type clone struct {
	// path is the mount point of the clone.
	path      string
	directory bool
	fd        int
}

// cloneOf clones the mount of a path; false if the path does not exist.
func cloneOf(from, to string) (c clone, exists bool, err error) {
	var stat unix.Stat_t
	if err := unix.Stat(from, &stat); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return clone{}, false, nil
		}
		return clone{}, false, &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return clone{}, false, &fs.PathError{Op: "open_tree", Path: from, Err: err}
	}
	return clone{path: to, directory: stat.Mode&unix.S_IFMT == unix.S_IFDIR, fd: fd}, true, nil
}

// place creates the file or directory in a hidden directory, and mounts the clone on it. It never opens an existing file, which would
// belong to the driver.
func (c clone) place() error {
	err := os.MkdirAll(filepath.Dir(c.path), 0o755)
	if err == nil && c.directory {
		err = os.MkdirAll(c.path, 0o755)
	} else if err == nil {
		err = unix.Mknod(c.path, unix.S_IFREG|0o444, 0)
	}
	if err == nil {
		err = unix.MoveMount(c.fd, "", unix.AT_FDCWD, c.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return fmt.Errorf("mounting %s: %w", c.path, err)
	}
	return unix.Close(c.fd)
}

// hides reports whether a path is in a hidden directory.
func (t mountTree) hides(path string) bool {
	return slices.ContainsFunc(t.Hidden, func(directory string) bool { return strings.HasPrefix(path, directory+"/") })
}

// clones returns clones of all kept paths that would be hidden. If the service's host root is its own /, nothing of the driver is hidden.
func (t mountTree) clones() ([]clone, error) {
	from := map[string]string{}
	for _, path := range t.Kept {
		if t.hides(path) {
			from[path] = path
		}
	}
	for _, name := range standardNodes {
		from["/dev/"+name] = "/dev/" + name
	}
	nodes, err := filepath.Glob(filepath.Join(t.Dev, "nvidia*"))
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		from["/dev/"+filepath.Base(node)] = node
	}
	var all []clone
	for _, to := range slices.Sorted(maps.Keys(from)) {
		c, exists, err := cloneOf(from[to], to)
		if err != nil {
			return nil, err
		}
		if exists {
			all = append(all, c)
		}
	}
	return all, nil
}

// enter changes the mount namespace of this process, which no other process shares. Later mounts of the service in the daemon's directory
// still propagate to it.
func (t mountTree) enter() error {
	clones, err := t.clones()
	if err != nil {
		return err
	}
	for _, path := range append(slices.Clone(t.Hidden), "/dev") {
		if err := coverByTmpfs(path); err != nil {
			return err
		}
	}
	for _, c := range clones {
		if err := c.place(); err != nil {
			return err
		}
	}
	for name, target := range standardLinks {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	if err := os.Mkdir("/dev/shm", 0o755); err != nil {
		return err
	}
	for _, path := range t.Hidden {
		if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return &fs.PathError{Op: "mounting read-only", Path: path, Err: err}
		}
	}
	return nil
}

// coverByTmpfs removes all mounts at the directory, and mounts a tmpfs there.
func coverByTmpfs(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) {
			break // nothing is mounted
		}
		if err != nil {
			return &fs.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID, "mode=755,size=1m"); err != nil {
		return &fs.PathError{Op: "mounting a tmpfs at", Path: path, Err: err}
	}
	return nil
}
