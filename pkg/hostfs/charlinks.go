package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// charDir contains links to device nodes, "<major>:<minor>". udev creates them for devices in sysfs, but the driver's devices are not in
// sysfs.
const charDir = "/dev/char"

// LinkCharDevices creates missing links to device nodes in the host's /dev/char. Without such links, container runtimes with the systemd
// cgroup driver drop the device rules of a container: systemd before version 240 does, and runc 1.1.3 to 1.1.6 does with any version of
// systemd. Existing entries of any kind are kept, and a host without /dev/char is not changed. The host's root may be mounted read-only in
// this process, as for Writable.
func (f *FS) LinkCharDevices(nodes []CharDevice) error {
	dir, err := f.resolve(charDir)
	if err != nil {
		return fmt.Errorf("creating links in %s: %w", charDir, err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	var failed []error
	for _, node := range nodes {
		name := fmt.Sprintf("%d:%d", node.Major, node.Minor)
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := os.Symlink(node.Path, filepath.Join(dir, name))
		if errors.Is(err, unix.EROFS) {
			err = f.linkReadOnly(name, node.Path)
		}
		// Another process may have created it first.
		if err != nil && !errors.Is(err, fs.ErrExist) {
			failed = append(failed, fmt.Errorf("creating the link %s/%s to %s: %w", charDir, name, node.Path, linkError(err)))
		}
	}
	return errors.Join(failed...)
}

// linkReadOnly creates a link in a directory whose mount is read-only in this process.
func (f *FS) linkReadOnly(name, target string) error {
	dir, release, err := f.Writable(charDir)
	if errors.Is(err, gpu.ErrNotFound) {
		return nil // it was removed in the meantime
	}
	if err != nil {
		return err
	}
	defer release()
	return os.Symlink(target, filepath.Join(dir, name))
}

// linkError removes the paths of this process from an error.
func linkError(err error) error {
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}
