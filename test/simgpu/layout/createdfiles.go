package layout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// maker makes files and remembers them, newest last.
type maker struct {
	Made   []string `json:"made"`
	Mounts []string `json:"mounts,omitempty"`
}

// dir makes a directory and its parents; those that were there are not ours.
func (m *maker) dir(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := m.dir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return fmt.Errorf("making directory: %w", err)
	}
	m.note(path)
	return nil
}

func (m *maker) note(path string) {
	m.Made = slices.DeleteFunc(m.Made, func(p string) bool { return p == path })
	m.Made = append(m.Made, path)
}

// vacate makes room for path; a leftover of an earlier node goes away.
func (m *maker) vacate(path string) error {
	if err := m.dir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	m.note(path)
	return nil
}

func (m *maker) file(path, text string, mode fs.FileMode) error {
	if err := m.vacate(path); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return fmt.Errorf("writing file: %w", err)
	}
	return nil
}

func (m *maker) link(path, target string) error {
	if err := m.vacate(path); err != nil {
		return err
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("making link: %w", err)
	}
	return nil
}

func (m *maker) copy(from, to string, mode fs.FileMode) error {
	if err := m.vacate(to); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying file: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("copying file: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copying %s to %s: %w", from, to, err)
	}
	return nil
}

func (m *maker) charDevice(path string, major, minor uint32) error {
	if err := m.vacate(path); err != nil {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("making device node %s (%d, %d): %w", path, major, minor, err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // mknod obeyed the umask
		return fmt.Errorf("making device node: %w", err)
	}
	return nil
}

// removeWhere takes away what was made and matches, newest first. Directories
// that hold something of others stay.
func (m *maker) removeWhere(match func(path string) bool) error {
	var failed []error
	kept := []string{}
	for _, path := range slices.Backward(m.Made) {
		if !match(path) {
			kept = append(kept, path)
			continue
		}
		err := os.Remove(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
			failed = append(failed, fmt.Errorf("removing: %w", err))
		}
	}
	slices.Reverse(kept)
	m.Made = kept
	return errors.Join(failed...)
}

// removeAll takes away everything.
func (m *maker) removeAll() error {
	var failed []error
	for _, path := range slices.Backward(m.Mounts) {
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			failed = append(failed, fmt.Errorf("unmounting %s: %w", path, err))
		}
	}
	m.Mounts = nil
	failed = append(failed, m.removeWhere(func(string) bool { return true }))
	return errors.Join(failed...)
}
