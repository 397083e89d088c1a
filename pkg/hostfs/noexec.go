package hostfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// NoExec reports whether the mount that the host has at the path has the option noexec: the host's kernel executes no program from it.
// A volume of this process's own container does not show that, because container runtimes mount volumes without the option. The
// host's root directory itself is such a volume, but not what the host has mounted below it. gpu.ErrNotFound: nothing is at the path.
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
