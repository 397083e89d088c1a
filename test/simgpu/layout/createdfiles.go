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

// maker creates files and records them, newest last.
type maker struct {
	Made   []string `json:"made"`
	Mounts []string `json:"mounts,omitempty"`
}

// dir creates a directory and its parents, and records those that did not exist.
func (m *maker) dir(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := m.dir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return fmt.Errorf("creating directory: %w", err)
	}
	m.note(path)
	return nil
}

func (m *maker) note(path string) {
	m.Made = slices.DeleteFunc(m.Made, func(p string) bool { return p == path })
	m.Made = append(m.Made, path)
}

// vacate removes a leftover of an earlier node at path.
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
		return fmt.Errorf("creating link: %w", err)
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
		return fmt.Errorf("creating device node %s (%d, %d): %w", path, major, minor, err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // mknod applied the umask
		return fmt.Errorf("creating device node: %w", err)
	}
	return nil
}

// removeWhere removes created files that match, newest first. Directories
// with other files stay.
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

// removeAll removes all created files.
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
