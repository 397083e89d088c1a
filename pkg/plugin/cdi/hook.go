package cdi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/disk"
)

// HookName is NVIDIA's hook program in CDI specs, OwnHookName the one of this project.
const (
	HookName    = "nvidia-cdi-hook"
	OwnHookName = "prism-hook"
)

// HostHooks are the paths on the host at which NVIDIA's container toolkit installs the hook.
var HostHooks = []string{
	"/usr/bin/" + HookName, "/usr/local/bin/" + HookName, "/usr/local/nvidia/toolkit/" + HookName,
	"/run/current-system/sw/bin/" + HookName, // NixOS
}

// ErrNoExec says that the runtime could not execute a hook program.
var ErrNoExec = errors.New("the filesystem is mounted with the option noexec")

// CreateContainerHook returns the edit with which the runtime starts the program at path, after it has created the container's mounts and
// before it enters the container's root. The program can fail the container.
func CreateContainerHook(path string, args ...string) *specs.Hook {
	return &specs.Hook{HookName: "createContainer", Path: path, Args: append([]string{filepath.Base(path)}, args...)}
}

// CreateRuntimeHook returns the edit with which the runtime starts the program at path, before the container's first process is executed.
// The program can fail the container.
func CreateRuntimeHook(path string, args ...string) *specs.Hook {
	return &specs.Hook{HookName: "createRuntime", Path: path, Args: append([]string{filepath.Base(path)}, args...)}
}

// Hooks installs the hook programs that the host lacks. The runtime starts them on the host, so their directory has the same path there. It
// contains one folder per version: a container that restarts runs the hook that its spec names. The runtime starts some hooks as the
// container's root user, which in a user namespace is not root of the host: all users must be able to reach the directory.
//
// During an update, processes of several versions use the directory at once. A process holds the lock of Dir while it creates or removes
// entries, and the lock of a version's folder as long as it may name its programs in a spec.
type Hooks struct {
	Disk disk.Files
	// Dir contains the folders, at the same path on the host. Dir and its parent directory belong to the driver.
	Dir string
	// HostDir is the path on the host if it differs; empty: Dir.
	HostDir string
	// Extra are the names of the programs in the folder of a version besides HookName and OwnHookName. The folder of another version is removed
	// only if it contains no further file.
	Extra []string
	// NoExec reports whether the host's mount at a path uses the option noexec; nil: it is not checked.
	NoExec func(path string) (bool, error)
}

// Program is a hook program inside this program's image, or a file that containers get in addition to the hook.
type Program struct {
	// Name is HookName, OwnHookName or one of Hooks.Extra, Image the program's path in the image.
	Name, Image string
}

// Installed is an installed hook program. It stays installed until Release, and after that as long as a spec names it.
type Installed struct {
	// Path is the program's path, the same on the host.
	Path string
	// Release lets others remove it.
	Release func()
}

// Install installs a program of this version. fs.ErrNotExist: the image does not contain it. ErrNoExec: programs cannot be executed in the
// directory, and none is left there.
func (h Hooks) Install(version string, program Program) (installed Installed, err error) {
	for _, dir := range []string{filepath.Dir(h.Dir), h.Dir} {
		if err := h.Disk.MakeDir(dir, 0o755); err != nil {
			return installed, fmt.Errorf("creating the hooks directory %s: %w", dir, err)
		}
	}
	done, err := h.Disk.Hold(h.Dir, false)
	if err != nil {
		return installed, fmt.Errorf("installing the hook: %w", err)
	}
	defer done()
	dir := filepath.Join(h.Dir, version)
	if err := h.Disk.MakeDir(dir, 0o755); err != nil {
		return installed, fmt.Errorf("creating the hook directory %s: %w", dir, err)
	}
	installed.Path = filepath.Join(dir, program.Name)
	if err := h.Disk.Mirror(program.Image, installed.Path, 0o755); err != nil {
		_ = h.Disk.Remove(dir) // fails, as it should, if the folder contains a program
		return installed, fmt.Errorf("installing the hook: %w", err)
	}
	if err := h.checkExecutable(dir); err != nil {
		return installed, fmt.Errorf("installing the hook: %w", err)
	}
	if installed.Release, err = h.Disk.Hold(dir, true); err != nil {
		return installed, fmt.Errorf("installing the hook: %w", err)
	}
	return installed, nil
}

// checkExecutable fails if the runtime could not execute this version's programs, and removes them: no container could start with them, so
// none loses them.
func (h Hooks) checkExecutable(dir string) error {
	if h.NoExec == nil {
		return nil
	}
	noexec, err := h.NoExec(dir)
	if err == nil && noexec {
		err = errors.Join(ErrNoExec, h.discard(dir))
	}
	if err != nil {
		return fmt.Errorf("checking that programs in %s can be executed: %w", dir, err)
	}
	return nil
}

// Sweep removes the programs of other versions that no process holds and no spec in the directory names, and returns the
// versions removed.
func (h Hooks) Sweep(version string, specs *Dir) (removed []string, err error) {
	removed, _, err = h.sweep(version, specs, false)
	return removed, err
}

// Retire is Sweep for a directory into which no version installs any more: the directory is removed with the last version. gone reports
// that it was.
func (h Hooks) Retire(specs *Dir) (removed []string, gone bool, err error) {
	return h.sweep("", specs, true)
}

// sweep removes the unneeded versions except version. With whole set, it also removes the directory once it is empty.
func (h Hooks) sweep(version string, specs *Dir, whole bool) (removed []string, gone bool, err error) {
	done, err := h.Disk.Hold(h.Dir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("removing unused hooks in %s: %w", h.Dir, err)
	}
	defer done()
	versions, err := h.Disk.List(h.Dir)
	if err != nil {
		return nil, false, fmt.Errorf("listing the hooks in %s: %w", h.Dir, err)
	}
	for _, old := range versions {
		if old == version {
			continue
		}
		gone, err := h.remove(old, specs)
		if err != nil {
			return removed, false, fmt.Errorf("removing the hook of version %s: %w", old, err)
		}
		if gone {
			removed = append(removed, old)
		}
	}
	if !whole || len(removed) < len(versions) {
		return removed, false, nil
	}
	if err := h.Disk.Remove(h.Dir); err != nil {
		return removed, false, fmt.Errorf("removing the previous hooks directory: %w", err)
	}
	return removed, true, nil
}

// remove removes one version's programs unless one of them is needed.
func (h Hooks) remove(version string, specs *Dir) (gone bool, err error) {
	dir := filepath.Join(h.Dir, version)
	release, held, err := h.Disk.TryHold(dir)
	if err != nil || !held {
		return false, err
	}
	defer release()
	if named, err := specs.namesBelow(filepath.Join(cmp.Or(h.HostDir, h.Dir), version)); err != nil || named {
		return false, err
	}
	return true, h.discard(dir)
}

// VersionOf returns the version whose programs the claim's spec mounts or starts; empty without such a spec.
func (h Hooks) VersionOf(specs *Dir, claimUID string) string {
	spec, err := h.Disk.Read(specs.file(claimUID))
	if err != nil {
		return ""
	}
	_, below, named := bytes.Cut(spec, []byte(`"`+h.Dir+`/`))
	end := bytes.IndexAny(below, `/"`)
	if !named || end < 0 {
		return ""
	}
	return string(below[:end])
}

// discard removes one version's folder. The caller holds its lock, or no other process knows the folder yet.
func (h Hooks) discard(dir string) error {
	var errs []error
	for _, name := range append([]string{HookName, OwnHookName}, h.Extra...) {
		path := filepath.Join(dir, name)
		errs = append(errs, h.Disk.Remove(path+disk.TempSuffix), h.Disk.Remove(path))
	}
	return errors.Join(append(errs, h.Disk.Remove(dir))...)
}

// namesBelow reports whether any claim's spec names a path in the directory.
func (d *Dir) namesBelow(dir string) (bool, error) {
	uids, err := d.Claims()
	if err != nil {
		return false, err
	}
	for _, uid := range uids {
		named, err := d.Names(uid, dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if named || err != nil {
			return named, err
		}
	}
	return false, nil
}
