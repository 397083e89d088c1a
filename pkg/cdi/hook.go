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

// HookName is NVIDIA's program that CDI specs name as OCI hook, OwnHookName that of this project.
const (
	HookName    = "nvidia-cdi-hook"
	OwnHookName = "prism-hook"
)

// HostHooks are the host's paths at which NVIDIA's container toolkit puts the hook.
var HostHooks = []string{
	"/usr/bin/" + HookName, "/usr/local/bin/" + HookName, "/usr/local/nvidia/toolkit/" + HookName,
	"/run/current-system/sw/bin/" + HookName, // NixOS
}

// ErrNoExec is the error of a hook program that the runtime could not execute.
var ErrNoExec = errors.New("the filesystem is mounted with the option noexec")

// ProfilerLibrary and ProfilerRun are what containers of profiled claims get besides the hook: they are installed beside it.
const (
	ProfilerLibrary = "libprism-inject.so"
	ProfilerRun     = "prism-run"
)

// CreateContainerHook is the edit that has the runtime start the program at that path, which may fail the container, once the container's
// mounts are there and before its root is entered.
func CreateContainerHook(path string, args ...string) *specs.Hook {
	return &specs.Hook{HookName: "createContainer", Path: path, Args: append([]string{filepath.Base(path)}, args...)}
}

// CreateRuntimeHook is the edit that has the runtime start the program at that path, which may fail the container, before the container's
// first process is executed.
func CreateRuntimeHook(path string, args ...string) *specs.Hook {
	return &specs.Hook{HookName: "createRuntime", Path: path, Args: append([]string{filepath.Base(path)}, args...)}
}

// Hooks keeps the hook programs that the host does not have. The runtime starts them on the host, so they live in a directory that
// has the same path there, one folder per version: a container that is started again runs the hook its spec names. The runtime
// starts some as the container's root user, which in a user namespace is none of the host's: all users must reach the directory.
//
// Processes of several versions work on it at once while one takes over from the other. Dir is held while anything in it is
// made or removed, and a version's folder for as long as a process may name its programs in a spec.
type Hooks struct {
	Disk disk.Files
	// Dir holds the folders; the same path on the host. It and the directory that it is in are the driver's own.
	Dir string
	// HostDir is the path on the host where that is another one; empty: Dir.
	HostDir string
	// NoExec reports whether the host's mount at a path has the option noexec; nil: it is not checked.
	NoExec func(path string) (bool, error)
}

// Program is a hook program inside this program's image.
type Program struct {
	// Name is one of programs, Image the path in the image.
	Name, Image string
}

// programs are the names of all there may be in the folder of a version.
var programs = []string{HookName, OwnHookName, ProfilerLibrary, ProfilerRun}

// Installed is a hook program in its place. It stays there until Release, and after that while a spec names it.
type Installed struct {
	// Path is the program's, the same on the host.
	Path string
	// Release lets others remove it.
	Release func()
}

// Install puts a program of this version in place. fs.ErrNotExist: the image has none. ErrNoExec: nothing can be executed
// there, and nothing is left there.
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
		_ = h.Disk.Remove(dir) // fails, as it should, where the folder holds a program
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

// checkExecutable fails where the runtime could not execute this version's programs, and removes them then: no container
// could be started with them, so none loses them.
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

// Retire is Sweep for a directory that no version installs into any more: the directory goes with the last version, which is
// what gone reports.
func (h Hooks) Retire(specs *Dir) (removed []string, gone bool, err error) {
	return h.sweep("", specs, true)
}

// sweep removes what it may of the versions, but not that one, and with whole set the directory too once it is empty.
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

// remove removes one version's programs unless one is needed.
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

// VersionOf returns the version whose programs the claim's spec mounts or starts; empty where there is no such spec.
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

// discard removes one version's folder. Hold it, or let no process know it yet.
func (h Hooks) discard(dir string) error {
	var errs []error
	for _, name := range programs {
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
