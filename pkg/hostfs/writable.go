package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Writable returns a path of this process through which a directory of the host is writable, although the host's root is mounted read-only
// in this process. No other directory becomes writable, and no other process sees the path. It needs CAP_SYS_ADMIN and Linux 5.12. Call
// release when the path is no longer used. gpu.ErrNotFound: the directory does not exist.
func (f *FS) Writable(path string) (dir string, release func(), err error) {
	seen, err := f.resolve(path)
	if err != nil {
		return "", nil, err
	}
	info, err := os.Stat(seen)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return "", nil, fmt.Errorf("directory %s on the host: %w", path, gpu.ErrNotFound)
	}
	if err != nil {
		return "", nil, hostError(path, err)
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, seen, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", nil, fmt.Errorf("writing directory %s on the host: copying its mount: %w", path, err)
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return "", nil, errors.Join(fmt.Errorf("writing directory %s on the host: %w", path, err), unix.Close(tree))
	}
	return fmt.Sprintf("/proc/self/fd/%d", tree), func() { _ = unix.Close(tree) }, nil
}
