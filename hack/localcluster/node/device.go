//go:build linux

package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// makeDev builds a separate /dev for the node and moves it into place. This must happen before the mounts are shared: afterwards the move
// is refused, and device nodes would be created in the machine's /dev.
func (m Machine) makeDev() error {
	dev := filepath.Join(m.Dir, "dev")
	if err := mkdirs(dev); err != nil {
		return err
	}
	if err := unix.Mount("dev", dev, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return fmt.Errorf("tmpfs for /dev: %w", err)
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse"} {
		if err := copyDevice(filepath.Join("/dev", name), filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	if err := fillDev(dev); err != nil {
		return err
	}
	return unix.Mount(dev, "/dev", "", unix.MS_MOVE, "")
}

// copyDevice creates the same device node at another path. It skips a device that the machine lacks.
func copyDevice(from, to string) error {
	var stat unix.Stat_t
	if err := unix.Stat(from, &stat); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("reading %s: %w", from, err)
	}
	if err := unix.Mknod(to, stat.Mode, int(stat.Rdev)); err != nil {
		return fmt.Errorf("making the device node %s: %w", filepath.Base(to), err)
	}
	// mknod applies the umask.
	return os.Chmod(to, fs.FileMode(stat.Mode&0o777))
}

func fillDev(dev string) error {
	pts, shm := filepath.Join(dev, "pts"), filepath.Join(dev, "shm")
	// udev creates char and its links.
	if err := mkdirs(pts, shm, filepath.Join(dev, "char")); err != nil {
		return err
	}
	if err := unix.Mount("devpts", pts, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("devpts: %w", err)
	}
	if err := unix.Mount("shm", shm, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return fmt.Errorf("tmpfs for /dev/shm: %w", err)
	}
	links := map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return nil
}

// unmaskedDir contains a /proc and a /sys over which nothing is mounted.
const unmaskedDir = "/run/unmasked"

// mountUnmasked mounts a second proc and sysfs, for pods with hostUsers false: the kernel allows a user namespace to mount its own only if
// an existing one has no hidden parts, and mountTables hides parts of /proc and /sys.
func (m Machine) mountUnmasked() error {
	for name, kind := range map[string]string{"proc": "proc", "sys": "sysfs"} {
		dir := filepath.Join(unmaskedDir, name)
		if err := mkdirs(dir); err != nil {
			return err
		}
		if err := unix.Mount(kind, dir, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("%s on %s: %w", kind, dir, err)
		}
	}
	return nil
}

// mountTables mounts files of the node over the kernel's hardware information, so that a simulated GPU can appear there.
func (m Machine) mountTables() error {
	if err := unix.Mount("driver", "/proc/driver", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("tmpfs on /proc/driver: %w", err)
	}
	const pci = "/sys/bus/pci/devices"
	// A machine without a PCI bus lacks the folder to mount over.
	if err := unix.Mount("pci", pci, "tmpfs", 0, "mode=755"); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("tmpfs on %s: %w", pci, err)
	}
	devices, err := os.ReadFile("/proc/devices")
	if err != nil {
		return err
	}
	if err := m.bindText("devices", deviceTable(string(devices)), "/proc/devices"); err != nil {
		return err
	}
	id, err := newUUID()
	if err != nil {
		return err
	}
	return m.bindText("boot-id", id+"\n", "/proc/sys/kernel/random/boot_id")
}

// BootID returns the id of the node's current boot, as reported by the kubelet.
func (m Machine) BootID() (string, error) {
	text, err := os.ReadFile(filepath.Join(m.Dir, "boot-id"))
	if err != nil {
		return "", fmt.Errorf("reading the boot id of %s: %w", m.Name, err)
	}
	return string(text[:len(text)-1]), nil
}

func (m Machine) bindText(name, text, over string) error {
	file := filepath.Join(m.Dir, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(file, over, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s: %w", over, err)
	}
	return nil
}

func newUUID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("making an id: %w", err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
