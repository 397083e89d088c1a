package layout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// initialPIDNamespace is the inode number that Linux gives the pid namespace
// of the machine itself.
const initialPIDNamespace = "pid:[4026531836]"

// systemDirs belong to the machine unless a node has its own.
var systemDirs = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys", "/usr", "/var"}

// Check refuses paths on which making a node would change the machine itself:
// a sandbox must stay out of the system's directories, and a node must be a
// set of namespaces with directories of its own.
func (p Paths) Check() error {
	for _, path := range []string{p.Root, p.Dev, p.ProcDriver, p.PCI, p.ProcDevices} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("making a GPU node in %q: the path must be absolute", path)
		}
	}
	if p.sandboxed() && !inSystemDir(p.Root) {
		return nil
	}
	if err := insideNode(); err != nil {
		return fmt.Errorf("making a GPU node with root %s and devices in %s: %w", p.Root, p.Dev, err)
	}
	return p.ownDirs()
}

func inSystemDir(path string) bool {
	if path == "/" {
		return true
	}
	for _, dir := range systemDirs {
		if path == dir || below(path, dir) {
			return !below(path, "/var/tmp")
		}
	}
	return false
}

var errMachine = errors.New("this is the machine itself, not a node (run inside a node's namespaces, or use --sandbox)")

// insideNode fails on the machine itself. A node has its own mount namespace
// and a tmpfs on /proc/driver, which no real machine has.
func insideNode() error {
	kind, err := filesystem("/proc/driver")
	if err != nil {
		return err
	}
	mine, first := namespace("self", "mnt"), namespace("1", "mnt")
	own := namespace("self", "pid") != initialPIDNamespace || (mine != "" && mine != first)
	if kind != unix.TMPFS_MAGIC || !own {
		return errMachine
	}
	return nil
}

func namespace(process, kind string) string {
	link, err := os.Readlink(filepath.Join("/proc", process, "ns", kind))
	if err != nil {
		return ""
	}
	return link
}

// ownDirs checks that each place outside a sandbox is a filesystem of the node.
func (p Paths) ownDirs() error {
	places := map[string]string{"--dev": p.Dev, "--proc-driver": p.ProcDriver, "--pci": p.PCI}
	if inSystemDir(p.Root) {
		places["--root"] = filepath.Join(p.Root, "usr")
	}
	for flag, path := range places {
		kind, err := filesystem(path)
		if err != nil {
			return err
		}
		if kind != unix.TMPFS_MAGIC && kind != unix.OVERLAYFS_SUPER_MAGIC {
			return fmt.Errorf("making a GPU node: %s %s is shared with the machine, a node needs a tmpfs or an overlay there", flag, path)
		}
	}
	return nil
}

// filesystem gives the type of the filesystem on which path is, or would be made.
func filesystem(path string) (int64, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(path, &st)
		if err == nil {
			return st.Type, nil
		}
		if !errors.Is(err, unix.ENOENT) || path == "/" {
			return 0, fmt.Errorf("looking at the filesystem of %s: %w", path, err)
		}
		path = filepath.Dir(path)
	}
}

// major reads the number of a character device driver from /proc/devices.
func major(procDevices, driver string) (uint32, error) {
	text, err := os.ReadFile(procDevices)
	if err != nil {
		return 0, fmt.Errorf("finding the major number of %s: %w", driver, err)
	}
	for line := range strings.Lines(string(text)) {
		var number uint32
		var name string
		if n, err := fmt.Sscan(line, &number, &name); err == nil && n == 2 && name == driver {
			return number, nil
		}
	}
	return 0, fmt.Errorf("finding the major number of %s: %s does not list it (bind a file over it that does)", driver, procDevices)
}
