package lifecycle

import (
	"context"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/prepare"
)

// Touch is called around each touch of the machine. Site names it: "disk.Rename records", "lock.GPUs", "step.Undo timeSlice".
// It calls effect, or returns why not, or does not return.
type Touch func(site string, effect func() error) error

// touchedDisk is the real disk.
type touchedDisk struct {
	disk.OS
	touch Touch
}

// at names what kind of file a path is, so that sites are the same for every claim.
func at(call, path string) string {
	switch {
	case strings.Contains(path, "claims"):
		return "disk." + call + " records"
	case strings.HasSuffix(strings.TrimSuffix(path, disk.TempSuffix), ".json"):
		return "disk." + call + " specs"
	default:
		return "disk." + call + " " + filepath.Base(path)
	}
}

func (d touchedDisk) Read(path string) (data []byte, err error) {
	err = d.touch(at("Read", path), func() error { data, err = d.OS.Read(path); return err })
	return data, err
}

func (d touchedDisk) List(dir string) (names []string, err error) {
	err = d.touch(at("List", dir), func() error { names, err = d.OS.List(dir); return err })
	return names, err
}

func (d touchedDisk) Write(path string, data []byte, perm fs.FileMode, durable bool) error {
	return d.touch(at("Write", path), func() error { return d.OS.Write(path, data, perm, durable) })
}

func (d touchedDisk) Rename(from, to string) error {
	return d.touch(at("Rename", to), func() error { return d.OS.Rename(from, to) })
}

func (d touchedDisk) Remove(path string) error {
	return d.touch(at("Remove", path), func() error { return d.OS.Remove(path) })
}

func (d touchedDisk) SyncDir(dir string) error {
	return d.touch(at("SyncDir", dir), func() error { return d.OS.SyncDir(dir) })
}

func (d touchedDisk) MakeDir(dir string, perm fs.FileMode) error {
	return d.touch(at("MakeDir", dir), func() error { return d.OS.MakeDir(dir, perm) })
}

// touchedLocks are the real locks. The touch comes before the wait: a lock that was taken is dropped by the kernel when its
// process dies, which leaves nothing to tell.
type touchedLocks struct {
	locks *checkpoint.Locks
	touch Touch
}

func (l touchedLocks) Claim(ctx context.Context, uid string) (func(), error) {
	if err := l.touch("lock.Claim", func() error { return nil }); err != nil {
		return nil, err
	}
	return l.locks.Claim(ctx, uid)
}

func (l touchedLocks) GPUs(ctx context.Context, uuids []gpu.UUID) (func(), bool, error) {
	if err := l.touch("lock.GPUs", func() error { return nil }); err != nil {
		return nil, false, err
	}
	return l.locks.GPUs(ctx, uuids)
}

// touchedStep is a kind of effect.
type touchedStep struct {
	step  prepare.Step
	kind  string
	touch Touch
}

func (s touchedStep) Do(ctx context.Context, step checkpoint.Step) (made json.RawMessage, err error) {
	err = s.touch("step.Do "+s.kind, func() error { made, err = s.step.Do(ctx, step); return err })
	return made, err
}

func (s touchedStep) Undo(ctx context.Context, step checkpoint.Step) error {
	return s.touch("step.Undo "+s.kind, func() error { return s.step.Undo(ctx, step) })
}
