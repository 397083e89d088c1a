package mpsd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/mpsd/state"
)

// directory is the directory of a control daemon.
type directory string

func (d directory) join(name string) string { return filepath.Join(string(d), name) }

func (d directory) pipe() string   { return d.join("pipe") }
func (d directory) client() string { return d.join("client") }
func (d directory) shm() string    { return d.join("shm") }
func (d directory) lib() string    { return d.join("lib") }
func (d directory) log() string    { return d.join("log") }
func (d directory) stdin() string  { return d.join("stdin") }
func (d directory) state() string  { return d.join(state.File) }

// daemonLog returns the path of the control daemon's output.
func (d directory) daemonLog() string { return filepath.Join(d.log(), "daemon.log") }

// serverLog returns the path of the servers' log.
func (d directory) serverLog() string { return filepath.Join(d.log(), "server.log") }

// mark returns the environment entry by which processes of the daemon are found. In clients, this variable names another directory.
func (d directory) mark() string { return "CUDA_MPS_PIPE_DIRECTORY=" + d.pipe() }

// injectionDir is the directory in /dev/shm from which libcuda loads libraries, also in the server, which runs as root. An empty read-only
// filesystem is mounted on it, also in the containers, so that root of a container cannot rename or replace the directory.
const injectionDir = "cuda_injection_path_shm"

func (d directory) injection() string { return filepath.Join(d.shm(), injectionDir) }

// prepare creates the directory for a daemon that is not running. It keeps subdirectories that containers have mounted.
func (d directory) prepare(ctx context.Context, system System, shmBytes int64, driver driver) error {
	if err := system.Remove(d.pipe()); err != nil {
		return err
	}
	for path, perm := range map[string]fs.FileMode{
		string(d): 0o755, d.pipe(): 0o700, d.client(): 0o755, d.shm(): 0o755, d.log(): 0o700,
	} {
		if path == d.shm() && isMount(path) {
			continue
		}
		if err := system.MakeDir(path, perm); err != nil {
			return err
		}
	}
	return errors.Join(system.MakeFIFO(d.stdin()), d.mountShm(ctx, system, shmBytes), d.linkLibraries(system, driver))
}

// mountShm mounts the tmpfs. It keeps a mounted one, because running containers use it.
func (d directory) mountShm(ctx context.Context, system System, bytes int64) error {
	mounted := isMount(d.shm())
	if err := d.mount(system, bytes, mounted); err != nil {
		if !mounted {
			return err
		}
		klog.FromContext(ctx).V(2).Info("Kept the size of a /dev/shm that is in use", "path", d.shm(), "reason", err.Error())
	}
	if isMount(d.injection()) {
		return nil
	}
	if err := system.ReplaceByDir(d.shm(), injectionDir); err != nil {
		return err
	}
	return system.MountEmpty(d.injection())
}

func (d directory) mount(system System, bytes int64, mounted bool) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(d.shm(), &stat); err != nil {
		return &fs.PathError{Op: "statfs", Path: d.shm(), Err: err}
	}
	page := int64(os.Getpagesize())
	sized := int64(stat.Blocks)*stat.Bsize == (bytes+page-1)/page*page //nolint:gosec // a size
	if mounted && sized && int64(stat.Files) == shmFiles(bytes) {      //nolint:gosec // a count
		return nil
	}
	return system.Mount(d.shm(), bytes, mounted)
}

// linkLibraries links only the driver's libraries: the daemon uses the C library of this container.
func (d directory) linkLibraries(system System, driver driver) error {
	libraries, err := driver.root.Libraries()
	if err != nil {
		return err
	}
	if err := errors.Join(system.Remove(d.lib()), system.MakeDir(d.lib(), 0o755)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(libraries)) {
		if err := system.Symlink(libraries[name], filepath.Join(d.lib(), name)); err != nil {
			return err
		}
	}
	return nil
}

// connectClients links the sockets of the running daemon for clients, each atomically.
func (d directory) connectClients(system System) error {
	for _, name := range []string{"log", "control"} {
		from, to := filepath.Join(d.pipe(), name), filepath.Join(d.client(), name)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) && name == "log" {
			continue // the driver does not use it
		}
		if sameFile(from, to) {
			continue
		}
		if err := system.Link(from, to); err != nil {
			return fmt.Errorf("linking the socket of clients: %w", err)
		}
	}
	return nil
}

// remove removes the whole directory.
func (d directory) remove(system System) error {
	for _, path := range []string{d.injection(), d.shm()} {
		if err := system.Unmount(path); err != nil {
			return err
		}
	}
	return system.Remove(string(d))
}

// environment returns the environment of the control daemon and of its user interface.
func (d directory) environment(driver driver, device string) []string {
	path := driver.serverDir
	if driver.controlDir != path {
		path += ":" + driver.controlDir
	}
	return []string{
		"PATH=" + path, "LD_LIBRARY_PATH=" + d.lib(), "CUDA_VISIBLE_DEVICES=" + device,
		d.mark(), "CUDA_MPS_LOG_DIRECTORY=" + d.log(),
	}
}

// validID reports whether an ID is a file name as created by gpu.MPSDaemonOf.
func validID(id gpu.MPSDaemonID) bool {
	const longest = 63
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return id != "" && len(id) <= longest && id[0] != '-'
}
