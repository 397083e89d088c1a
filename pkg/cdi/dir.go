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

// Dir keeps the specs of one kind in a directory that container runtimes read. Files of other kinds stay as they are. The
// CDI library's own writer reads every spec of the directory first, which would make a claim dearer the more claims there
// are.
type Dir struct {
	disk disk.Files
	path string
	kind string
	// former are the kinds of earlier driver names, whose specs are kept where they are.
	former atomic.Pointer[[]string]
}

// dirPermissions let container runtimes read the directory, whichever user they run as.
const dirPermissions = 0o755

// OpenDir makes the directory when there is none.
func OpenDir(d disk.Files, path, kind string) (*Dir, error) {
	if err := d.MakeDir(path, dirPermissions); err != nil {
		return nil, fmt.Errorf("creating the CDI directory %s: %w", path, err)
	}
	return &Dir{disk: d, path: path, kind: kind}, nil
}

// Write puts the claim's spec in place, whole or not at all; a file with the same content is left alone. It is not
// synced to disk: CDI directories do not outlive a reboot, and a spec is made again from the record. A directory that was
// removed is made again.
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

// Holds reports whether the claim's spec is there and names exactly these devices. A spec that cannot be read is not there.
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

// Names reports whether the claim's spec names the path, or one below it. fs.ErrNotExist: the claim has no spec.
func (d *Dir) Names(claimUID, path string) (bool, error) {
	spec, err := d.disk.Read(d.file(claimUID))
	if err != nil {
		return false, fmt.Errorf("reading the CDI spec of claim %s: %w", claimUID, err)
	}
	return bytes.Contains(spec, []byte(`"`+path+`/`)) || bytes.Contains(spec, []byte(`"`+path+`"`)), nil
}

// Remove deletes the claim's spec and what a crash left of writing it; no error when there is none.
func (d *Dir) Remove(claimUID string) error {
	for _, kind := range d.kinds() {
		file := filepath.Join(d.path, FileName(kind, claimUID))
		if err := errors.Join(d.disk.Remove(file+disk.TempSuffix), d.disk.Remove(file)); err != nil {
			return fmt.Errorf("removing the CDI spec of claim %s: %w", claimUID, err)
		}
	}
	return nil
}

// Adopt adds the specs of the kind of an earlier driver name: a claim that has one keeps it, whatever is written into it.
func (d *Dir) Adopt(kind string) {
	kinds := append(slices.Clone(d.kinds()[1:]), kind)
	d.former.Store(&kinds)
}

// Disown takes back Adopt.
func (d *Dir) Disown(kind string) {
	kinds := slices.DeleteFunc(slices.Clone(d.kinds()[1:]), func(other string) bool { return other == kind })
	d.former.Store(&kinds)
}

// kinds are the kinds of the specs; that of new ones is first.
func (d *Dir) kinds() []string {
	kinds := []string{d.kind}
	if former := d.former.Load(); former != nil {
		kinds = append(kinds, *former...)
	}
	return kinds
}

// Claims lists the UIDs of the claims that have a spec here.
func (d *Dir) Claims() ([]string, error) { return d.ClaimsAnd(nil) }

// ClaimsAnd is Claims with the claims of further files of the directory; other returns the UID of the claim that a file of that name is of.
func (d *Dir) ClaimsAnd(other func(name string) (claimUID string, is bool)) ([]string, error) {
	return d.named("", other)
}

// Unfinished lists the UIDs of the claims whose spec began to be written: a process is still writing it, or was killed.
func (d *Dir) Unfinished() ([]string, error) { return d.named(disk.TempSuffix, nil) }

// Discard removes what a crash left of writing the claim's spec, and not the spec; no error when there is nothing. Hold the
// claim's lock.
func (d *Dir) Discard(claimUID string) error {
	for _, kind := range d.kinds() {
		if err := d.disk.Remove(filepath.Join(d.path, FileName(kind, claimUID)) + disk.TempSuffix); err != nil {
			return fmt.Errorf("removing the unfinished CDI spec of claim %s: %w", claimUID, err)
		}
	}
	return nil
}

// named lists the UIDs in the names of our files that have this after the spec's own name, and of other files.
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

// file is the claim's spec: the one of an earlier kind that is there, else that of the present one.
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
