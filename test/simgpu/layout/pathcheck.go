package layout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// initialPIDNamespace is the inode number that Linux gives the pid namespace
// of the host itself.
const initialPIDNamespace = "pid:[4026531836]"

// systemDirs are directories of the host unless a node mounts its own.
var systemDirs = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys", "/usr", "/var"}

// Check refuses paths where creating a node would change the host itself: a sandbox must stay out of the system's directories, and a node
// must be a set of namespaces with its own directories.
func (p Paths) Check() error {
	for _, path := range []string{p.Root, p.Dev, p.ProcDriver, p.PCI, p.ProcDevices} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("creating a GPU node in %q: the path must be absolute", path)
		}
	}
	if p.sandboxed() && !inSystemDir(p.Root) {
		return nil
	}
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	if err := insideNode(mounts); err != nil {
		return fmt.Errorf("creating a GPU node with root %s and devices in %s: %w", p.Root, p.Dev, err)
	}
	return p.ownDirs(mounts)
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

var errMachine = errors.New("this is the host itself, not a node (run inside a node's namespaces, or use --sandbox)")

// insideNode fails on the host itself. A node runs in its own mount namespace with a tmpfs on /proc/driver, which no real machine has.
func insideNode(mounts []mount) error {
	mine, first := namespace("self", "mnt"), namespace("1", "mnt")
	own := namespace("self", "pid") != initialPIDNamespace || (mine != "" && mine != first)
	if !own || mountOf(mounts, "/proc/driver").kind != "tmpfs" {
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
func (p Paths) ownDirs(mounts []mount) error {
	root := p.Root
	if root == "/" {
		root = "/usr"
	}
	for _, place := range []struct{ flag, path string }{
		{"--root", root}, {"--dev", p.Dev}, {"--proc-driver", p.ProcDriver}, {"--proc-driver", p.capsDir()}, {"--pci", p.PCI},
	} {
		on := mountOf(mounts, place.path)
		if on.point == "/" || (on.kind != "tmpfs" && on.kind != "overlay") {
			return fmt.Errorf("creating a GPU node: %s %s is shared with the host, a node needs a tmpfs or an overlay there", place.flag, place.path)
		}
	}
	return nil
}

// mount is one line of mountinfo.
type mount struct {
	point, kind string
}

// readMounts lists the mounts of this process, oldest first.
func readMounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts of this process: %w", err)
	}
	var mounts []mount
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) > 4 && len(kind) > 0 {
			mounts = append(mounts, mount{point: fields[4], kind: kind[0]})
		}
	}
	return mounts, nil
}

// mountOf finds the mount on which path is, or would be created.
func mountOf(mounts []mount, path string) mount {
	var found mount
	for _, m := range mounts {
		if (path == m.point || below(path, m.point)) && len(m.point) >= len(found.point) {
			found = m
		}
	}
	return found
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
