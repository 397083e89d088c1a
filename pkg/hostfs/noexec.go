package hostfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// NoExec reports whether the host's mount at the path has the option noexec, so that programs in it cannot be executed. The option of
// a volume's own mount, such as that of the host's root directory, is not visible in a container, because container runtimes mount
// volumes without it; those of mounts below the root directory are. gpu.ErrNotFound: nothing is at the path.
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
