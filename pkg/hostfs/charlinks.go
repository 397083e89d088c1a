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

// charDir has links to device nodes, "<major>:<minor>". udev makes those of devices that are in sysfs, which the driver's are not.
const charDir = "/dev/char"

// LinkCharDevices makes the links in the host's /dev/char to device nodes where they are missing. With the systemd cgroup driver, systemd before version
// 240, and runc 1.1.3 to 1.1.6 with any version, drop the device rules of a container whose devices have none there. What is there is kept, whatever
// it is, and a host without /dev/char is left as it is. The host's root may be mounted read-only here, as of Writable.
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
		// Another process was faster.
		if err != nil && !errors.Is(err, fs.ErrExist) {
			failed = append(failed, fmt.Errorf("creating the link %s/%s to %s: %w", charDir, name, node.Path, linkError(err)))
		}
	}
	return errors.Join(failed...)
}

// linkReadOnly makes a link in a directory whose mount is read-only here.
func (f *FS) linkReadOnly(name, target string) error {
	dir, release, err := f.Writable(charDir)
	if errors.Is(err, gpu.ErrNotFound) {
		return nil // it was removed meanwhile
	}
	if err != nil {
		return err
	}
	defer release()
	return os.Symlink(target, filepath.Join(dir, name))
}

// linkError leaves this process's paths out.
func linkError(err error) error {
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}
