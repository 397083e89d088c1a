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

// Hardening is what control daemons and their servers lose of the container's rights: clients send them commands, and they run as root.
type Hardening string

// Values of Hardening.
const (
	// HardeningNone leaves everything.
	HardeningNone Hardening = "None"
	// HardeningMounts leaves the driver's files and device nodes, and the daemon's own directory. Calls that change mounts or the kernel fail.
	HardeningMounts Hardening = "Mounts"
	// HardeningFull also takes capabilities away, and further system calls.
	HardeningFull Hardening = "Full"
)

// Hardenings are all values.
var Hardenings = []Hardening{HardeningFull, HardeningMounts, HardeningNone}

// mountTree is what remains of the directories that it hides. All paths are those of this process, and stay the same.
type mountTree struct {
	// Hidden directories become empty.
	Hidden []string `json:"hidden"`
	// Kept are files and directories in them; what does not exist is left out.
	Kept []string `json:"kept"`
	// Dev is the directory whose device nodes of NVIDIA become those of /dev.
	Dev string `json:"dev"`
}

// driverSockets are the directories below the driver's root in which services of the driver listen.
var driverSockets = []string{"/run/nvidia-persistenced", "/run/nvidia-fabricmanager"}

// mountTree is that of a daemon.
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

// standardNodes are in the /dev of every container.
var standardNodes = []string{"null", "zero", "full", "random", "urandom"}

// standardLinks are, too.
var standardLinks = map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}

// clone is a mount that is not in the tree: a file or directory, with the mounts in it.
type clone struct {
	// path is where it belongs.
	path      string
	directory bool
	fd        int
}

// cloneOf returns false where nothing is.
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

// place makes the file or directory, in a directory that was hidden, and mounts the clone there. A file that is there is never opened: it
// would be the driver's.
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

// clones are those of all that would be hidden and remains. A service whose host root is its own / hides nothing of the driver.
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

// enter changes the mount namespace of this process, which is its own. Mounts of the service in the daemon's directory still follow.
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

// coverByTmpfs removes what is mounted at the directory, and mounts a tmpfs there.
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
