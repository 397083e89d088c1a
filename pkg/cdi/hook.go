package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/disk"
)

// HookName is the program that CDI specs name as OCI hook.
const HookName = "nvidia-cdi-hook"

// HostHooks are the host's paths at which NVIDIA's container toolkit puts the hook.
var HostHooks = []string{
	"/usr/bin/" + HookName, "/usr/local/bin/" + HookName, "/usr/local/nvidia/toolkit/" + HookName,
}

// Hooks keeps the hook program for hosts that have none. The runtime starts it on the host, so it lives in a directory that
// has the same path there, one folder per version: a container that is started again runs the hook its spec names.
type Hooks struct {
	Disk Disk
	// Dir holds the folders; the same path on the host.
	Dir string
	// Image is the program inside this program's image.
	Image string
}

// Install puts the program of this version in place and returns its path. fs.ErrNotExist: the image has none.
func (h Hooks) Install(version string) (string, error) {
	program, err := h.Disk.Read(h.Image)
	if err != nil {
		return "", fmt.Errorf("reading the hook program: %w", err)
	}
	dir := filepath.Join(h.Dir, version)
	path := filepath.Join(dir, HookName)
	if present, err := h.Disk.Read(path); err == nil && bytes.Equal(present, program) {
		return path, nil
	}
	if err := h.Disk.MakeDir(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the hook's directory %s: %w", dir, err)
	}
	if err := disk.Replace(h.Disk, path, program, 0o755, true); err != nil {
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
