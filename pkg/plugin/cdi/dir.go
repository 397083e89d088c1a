package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/disk"
)

// Dir keeps the specs of one kind in a directory that container runtimes read. It does not touch files of other kinds. It does not use the
// CDI library's writer, which reads every spec in the directory first, so that a claim would cost more the more claims exist.
type Dir struct {
	disk disk.Files
	path string
	kind string
	// former are the kinds of earlier driver names. Their specs keep their files.
	former atomic.Pointer[[]string]
}

// dirPermissions let container runtimes of any user read the directory.
const dirPermissions = 0o755

// OpenDir opens the directory and creates it if it does not exist.
func OpenDir(d disk.Files, path, kind string) (*Dir, error) {
	if err := d.MakeDir(path, dirPermissions); err != nil {
		return nil, fmt.Errorf("creating the CDI directory %s: %w", path, err)
	}
	return &Dir{disk: d, path: path, kind: kind}, nil
}

// Write writes the claim's spec completely or not at all; it does not touch a file with the same content. The file is not synced to disk:
// CDI directories do not survive a reboot, and a spec is rebuilt from the record. A missing directory is created again.
func (d *Dir) Write(claimUID string, spec *specs.Spec) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encoding the CDI spec of claim %s: %w", claimUID, err)
	}
	file := d.file(claimUID)
	if present, err := d.disk.Read(file); err == nil && bytes.Equal(present, data) {
		return nil
	}
	err = disk.Replace(d.disk, file, data, 0o644, false)
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.disk.MakeDir(d.path, dirPermissions); err == nil {
			err = disk.Replace(d.disk, file, data, 0o644, false)
		}
	}
	if err != nil {
		return fmt.Errorf("storing the CDI spec of claim %s: %w", claimUID, err)
	}
	return nil
}

// Holds reports whether the claim's spec exists and names exactly these devices. An unreadable spec counts as missing.
func (d *Dir) Holds(claimUID string, devices []string) bool {
	data, err := d.disk.Read(d.file(claimUID))
	if err != nil {
		return false
	}
	var spec specs.Spec
	if json.Unmarshal(data, &spec) != nil || !slices.Contains(d.kinds(), spec.Kind) || len(spec.Devices) != len(devices) {
		return false
	}
	for i := range devices {
		if spec.Devices[i].Name != devices[i] {
			return false
		}
	}
	return true
}

// Names reports whether the claim's spec names the path, or a path below it. fs.ErrNotExist: the claim has no spec.
func (d *Dir) Names(claimUID, path string) (bool, error) {
	spec, err := d.disk.Read(d.file(claimUID))
	if err != nil {
		return false, fmt.Errorf("reading the CDI spec of claim %s: %w", claimUID, err)
	}
	return bytes.Contains(spec, []byte(`"`+path+`/`)) || bytes.Contains(spec, []byte(`"`+path+`"`)), nil
}

// Remove deletes the claim's spec and unfinished files of it; no error if none exists.
func (d *Dir) Remove(claimUID string) error {
	for _, kind := range d.kinds() {
		file := filepath.Join(d.path, FileName(kind, claimUID))
		if err := errors.Join(d.disk.Remove(file+disk.TempSuffix), d.disk.Remove(file)); err != nil {
			return fmt.Errorf("removing the CDI spec of claim %s: %w", claimUID, err)
		}
	}
	return nil
}

// Adopt adds the specs with the kind of an earlier driver name: a claim with such a spec keeps its file, even if the spec is written again.
func (d *Dir) Adopt(kind string) {
	kinds := append(slices.Clone(d.kinds()[1:]), kind)
	d.former.Store(&kinds)
}

// Disown undoes Adopt.
func (d *Dir) Disown(kind string) {
	kinds := slices.DeleteFunc(slices.Clone(d.kinds()[1:]), func(other string) bool { return other == kind })
	d.former.Store(&kinds)
}

// kinds returns the kinds of the specs, starting with the kind of new specs.
func (d *Dir) kinds() []string {
	kinds := []string{d.kind}
	if former := d.former.Load(); former != nil {
		kinds = append(kinds, *former...)
	}
	return kinds
}

// Claims lists the UIDs of the claims with a spec in this directory.
func (d *Dir) Claims() ([]string, error) { return d.ClaimsAnd(nil) }

// ClaimsAnd is Claims with the claims of further files of the directory. other returns the UID of the claim to which a file belongs.
func (d *Dir) ClaimsAnd(other func(name string) (claimUID string, is bool)) ([]string, error) {
	return d.named("", other)
}

// Unfinished lists the UIDs of the claims with an unfinished spec: a process is still writing it, or was killed.
func (d *Dir) Unfinished() ([]string, error) { return d.named(disk.TempSuffix, nil) }

// Discard removes unfinished files of the claim's spec that a crash left, but not the spec; no error if there are none. The caller holds
// the claim's lock.
func (d *Dir) Discard(claimUID string) error {
	for _, kind := range d.kinds() {
		if err := d.disk.Remove(filepath.Join(d.path, FileName(kind, claimUID)) + disk.TempSuffix); err != nil {
			return fmt.Errorf("removing the unfinished CDI spec of claim %s: %w", claimUID, err)
		}
	}
	return nil
}

// named lists the UIDs in the names of this driver's files, which are spec names followed by ending, and of other files.
func (d *Dir) named(ending string, other func(name string) (claimUID string, is bool)) ([]string, error) {
	names, err := d.disk.List(d.path)
	if err != nil {
		return nil, fmt.Errorf("listing the CDI directory %s: %w", d.path, err)
	}
	var uids []string
	for _, name := range names {
		if other == nil {
			break
		}
		if uid, is := other(name); is && uid != "" {
			uids = append(uids, uid)
		}
	}
	for _, kind := range d.kinds() {
		prefix, suffix, _ := strings.Cut(FileName(kind, "\x00"), "\x00")
		for _, name := range names {
			rest, isOurs := strings.CutPrefix(name, prefix)
			uid, whole := strings.CutSuffix(rest, suffix+ending)
			if isOurs && whole && uid != "" && !strings.HasPrefix(uid, ".") && !slices.Contains(uids, uid) {
				uids = append(uids, uid)
			}
		}
	}
	return uids, nil
}

// File returns the path of the claim's spec.
func (d *Dir) File(claimUID string) string { return d.file(claimUID) }

// file returns the path of the claim's spec: an existing spec of an earlier kind, otherwise the path for the present kind.
func (d *Dir) file(claimUID string) string {
	kinds := d.kinds()
	for _, kind := range kinds[1:] {
		file := filepath.Join(d.path, FileName(kind, claimUID))
		if _, err := d.disk.Read(file); !errors.Is(err, fs.ErrNotExist) {
			return file
		}
	}
	return filepath.Join(d.path, FileName(kinds[0], claimUID))
}
