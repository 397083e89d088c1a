package hostfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// cgroupMount is the directory where hosts mount cgroups.
const cgroupMount = "/sys/fs/cgroup"

// UnifiedCgroups reports whether the host uses only cgroup v2, mounted at cgroupMount.
func (f *FS) UnifiedCgroups() bool {
	_, err := f.Cgroup("/")
	return err == nil
}

// Cgroup returns this process's path to the directory of the host's cgroup (v2) at that path below the mount: "/kubepods/pod...".
// gpu.ErrNotFound: the cgroup does not exist.
func (f *FS) Cgroup(path string) (string, error) {
	mount, err := f.resolve(cgroupMount)
	if err != nil {
		return "", err
	}
	seen, err := resolveIn(mount, path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(seen)
	if err != nil {
		return "", hostError(cgroupMount+path, err)
	}
	var stat unix.Statfs_t
	for {
		if err = unix.Statfs(seen, &stat); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return "", hostError(cgroupMount+path, &os.PathError{Op: "statfs", Path: seen, Err: err})
	}
	if !info.IsDir() || stat.Type != unix.CGROUP2_SUPER_MAGIC {
		return "", fmt.Errorf("%s%s is not a cgroup v2 directory:  %w", cgroupMount, path, gpu.ErrNotFound)
	}
	return seen, nil
}
