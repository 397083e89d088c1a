package hook

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPreload limits the size of an image's list of libraries, in bytes.
const maxPreload = 64 << 10

// root is the root folder of the container, in the container's mount namespace.
type root struct{ fd int }

func (r root) close() { _ = unix.Close(r.fd) }

// openRoot opens the container's root. It must be a folder below the bundle, or the folder in which the runtime starts the hook, and is
// never the root of the host.
func openRoot(bundle string, c *config) (r root, err error) {
	dir := c.Root.Path
	if dir == "" || dir == "." || strings.HasPrefix(dir, "../") || filepath.Clean(dir) != dir {
		return r, fmt.Errorf("the root of the container must be a clean path below the bundle, got %q", dir)
	}
	below, inside := strings.CutPrefix(dir, bundle+"/")
	if filepath.IsAbs(dir) && !inside {
		return openWorking(dir)
	}
	base, err := unix.Open(bundle, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return r, fmt.Errorf("opening the bundle %s: %w", bundle, err)
	}
	defer func() { _ = unix.Close(base) }()
	fd, err := unix.Openat2(base, below, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return r, fmt.Errorf("opening the root %q of the container below the bundle: %w", dir, err)
	}
	return checkRoot(fd, dir)
}

// openWorking opens a root outside the bundle, as with CRI-O: only if it is the working directory.
func openWorking(dir string) (r root, err error) {
	fd, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return r, fmt.Errorf("opening the working directory: %w", err)
	}
	var own, named unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &own), unix.Lstat(dir, &named)); err != nil || own.Dev != named.Dev || own.Ino != named.Ino {
		_ = unix.Close(fd)
		return r, errors.Join(fmt.Errorf("the root %q of the container is neither below the bundle nor the working directory", dir), err)
	}
	return checkRoot(fd, dir)
}

// checkRoot refuses the root of this process.
func checkRoot(fd int, dir string) (r root, err error) {
	var own, host unix.Stat_t
	err = errors.Join(unix.Fstat(fd, &own), unix.Stat("/", &host))
	if err == nil && own.Dev == host.Dev && own.Ino == host.Ino {
		err = fmt.Errorf("the root %q of the container is the root of the host", dir)
	}
	if err != nil {
		_ = unix.Close(fd)
		return r, err
	}
	return root{fd}, nil
}

// open opens a path in the container. Links are followed as in the container; none leads out of it.
func (r root) open(name string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | resolve,
	}
	for {
		fd, err := unix.Openat2(r.fd, name, &how)
		// The kernel limits its retries after renames.
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// ownFolder opens the container's own folder, which must be a tmpfs: nothing is written to any other file system there.
func (r root) ownFolder() (int, error) {
	fd, err := r.open(containerFolder, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, fmt.Errorf("opening %s of the container: %w", containerFolder, err)
	}
	var fs unix.Statfs_t
	err = unix.Fstatfs(fd, &fs)
	if err == nil && fs.Type != unix.TMPFS_MAGIC {
		err = errors.New("it is not a tmpfs")
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("opening %s of the container: %w", containerFolder, err)
	}
	return fd, nil
}

// readBelow reads a file in a folder.
func readBelow(folder int, name string, most int64) ([]byte, error) {
	fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return readRegular(fd, name, most)
}

// readRegular reads and closes a file.
func readRegular(fd int, name string, most int64) ([]byte, error) {
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return readAll(file, most)
}

// make creates a missing folder or file in the container's own file system: not in a volume, and not through a link.
func (r root) make(name string, folder bool) error {
	const own = unix.RESOLVE_NO_XDEV
	parent, err := r.open(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, own)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(parent) }()
	if folder {
		return unix.Mkdirat(parent, path.Base(name), 0o755)
	}
	fd, err := unix.Openat(parent, path.Base(name), unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
