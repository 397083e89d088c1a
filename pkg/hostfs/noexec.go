package hostfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// NoExec reports whether the host's mount at the path uses the option noexec, so that programs in it cannot be executed. In a container,
// the option is visible only for mounts below a volume, not for the volume's own mount such as the host's root directory: container
// runtimes mount volumes without it. gpu.ErrNotFound: nothing exists at the path.
func (f *FS) NoExec(path string) (bool, error) {
	seen, err := f.resolve(path)
	if err != nil {
		return false, err
	}
	var stat unix.Statfs_t
	for {
		err := unix.Statfs(seen, &stat)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, hostError(path, &os.PathError{Op: "statfs", Path: seen, Err: err})
		}
		return stat.Flags&unix.ST_NOEXEC != 0, nil
	}
}
