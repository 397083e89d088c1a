package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// HookName is the program that CDI specs name as OCI hook.
const HookName = "nvidia-cdi-hook"

// HostHooks are the host's paths at which NVIDIA's container toolkit puts the hook.
var HostHooks = []string{
	"/usr/bin/" + HookName, "/usr/local/bin/" + HookName, "/usr/local/nvidia/toolkit/" + HookName,
}

// HookDisk is what Hooks needs of a filesystem; disk.OS is the real one.
type HookDisk interface {
	List(dir string) ([]string, error)
	MakeDir(dir string, perm fs.FileMode) error
	Remove(path string) error
	// Mirror makes to a durable copy of from where it is none; fs.ErrNotExist when there is no from.
	Mirror(from, to string, perm fs.FileMode) error
}

// Hooks keeps the hook program for hosts that have none. The runtime starts it on the host, so it lives in a directory that
// has the same path there, one folder per version: a container that is started again runs the hook its spec names.
type Hooks struct {
	Disk HookDisk
	// Dir holds the folders; the same path on the host.
	Dir string
	// Image is the program inside this program's image.
	Image string
}

// Install puts the program of this version in place and returns its path. fs.ErrNotExist: the image has none.
func (h Hooks) Install(version string) (string, error) {
	dir := filepath.Join(h.Dir, version)
	path := filepath.Join(dir, HookName)
	if err := h.Disk.MakeDir(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the hook's directory %s: %w", dir, err)
	}
	if err := h.Disk.Mirror(h.Image, path, 0o755); err != nil {
		_ = h.Disk.Remove(dir) // fails, as it should, where the folder holds a program
		return "", fmt.Errorf("installing the hook: %w", err)
	}
	return path, nil
}

// Sweep removes the programs of other versions that no spec in the directory names, and returns the versions removed.
func (h Hooks) Sweep(version string, specs *Dir) (removed []string, err error) {
	versions, err := h.Disk.List(h.Dir)
	if err != nil {
		return nil, fmt.Errorf("listing the hooks in %s: %w", h.Dir, err)
	}
	for _, old := range versions {
		path := filepath.Join(h.Dir, old, HookName)
		if old == version {
			continue
		}
		named, err := specs.names(path)
		if err != nil {
			return removed, err
		}
		if named {
			continue
		}
		if err := errors.Join(h.Disk.Remove(path), h.Disk.Remove(filepath.Dir(path))); err != nil {
			return removed, fmt.Errorf("removing the hook of version %s: %w", old, err)
		}
		removed = append(removed, old)
	}
	return removed, nil
}

// names tells whether any claim's spec names that path.
func (d *Dir) names(path string) (bool, error) {
	uids, err := d.Claims()
	if err != nil {
		return false, err
	}
	for _, uid := range uids {
		spec, err := d.disk.Read(d.file(uid))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("reading the CDI spec of claim %s: %w", uid, err)
		}
		if bytes.Contains(spec, []byte(`"`+path+`"`)) {
			return true, nil
		}
	}
	return false, nil
}
