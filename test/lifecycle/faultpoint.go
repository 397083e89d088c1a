package lifecycle

import (
	"context"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/prepare"
)

// Touch is called around each touch of the machine. Site names it: "disk.Rename records", "lock.GPUs", "step.Undo persistence".
// It calls effect, or returns why not, or does not return.
type Touch func(site string, effect func() error) error

// looks are the sites that change nothing: neither the disk, nor a GPU, nor what the API server has.
var looks = map[string]bool{
	"lock.Claim": true, "lock.GPUs": true, "api.Config": true, "api.Slices": true, "api.Claims": true, "nvml.Open": true, "nvml.Driver": true,
	"nvml.GPUs": true, "nvml.CommonEdits": true, "nvml.MIGMode": true, "nvml.Instances": true, "nvml.Occupied": true, "nvml.Instance": true,
	"inventory.Refresh": true,
}

// looking tells whether a touch of that site only looks.
func looking(site string) bool {
	call, _, _ := strings.Cut(site, " ")
	return looks[call] || call == "disk.Read" || call == "disk.List" || call == "step.Find"
}

// touchedDisk is the real disk.
type touchedDisk struct {
	disk.OS
	touch Touch
	// journal is told of every change that was made; it may be nil. A disk with a journal writes in two touches: a process may
	// die in the middle of a file.
	journal func(change)
}

// changing touches the disk, and tells the journal before anything else can happen.
func (d touchedDisk) changing(site string, c change, effect func() error) error {
	return d.touch(site, func() error {
		err := effect()
		if err == nil && d.journal != nil {
			d.journal(c)
		}
		return err
	})
}

// at names what kind of file a path is, so that sites are the same for every claim.
func at(call, path string) string {
	switch {
	case strings.Contains(path, "claims"):
		return "disk." + call + " records"
	case strings.TrimSuffix(filepath.Base(path), disk.TempSuffix) == "layout.json":
		return "disk." + call + " layout"
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
	if d.journal != nil {
		half := data[:len(data)/2]
		err := d.changing(at("Write half of", path), change{Call: wrote, Path: path, Data: half}, func() error {
			return d.OS.Write(path, half, perm, false)
		})
		if err != nil {
			return err
		}
	}
	return d.changing(at("Write", path), change{Call: wrote, Path: path, Data: data, Durable: durable}, func() error {
		return d.OS.Write(path, data, perm, durable)
	})
}

func (d touchedDisk) Rename(from, to string) error {
	return d.changing(at("Rename", to), change{Call: renamed, Path: from, To: to}, func() error { return d.OS.Rename(from, to) })
}

func (d touchedDisk) Remove(path string) error {
	return d.changing(at("Remove", path), change{Call: removed, Path: path}, func() error { return d.OS.Remove(path) })
}

func (d touchedDisk) SyncDir(dir string) error {
	return d.changing(at("SyncDir", dir), change{Call: synced, Path: dir}, func() error { return d.OS.SyncDir(dir) })
}

func (d touchedDisk) MakeDir(dir string, perm fs.FileMode) error {
	return d.changing(at("MakeDir", dir), change{Call: madeDir, Path: dir}, func() error { return d.OS.MakeDir(dir, perm) })
}

// Mirror is the hook program's way to the host.
func (d touchedDisk) Mirror(from, to string, perm fs.FileMode) error {
	return d.touch("hook.Mirror", func() error { return d.OS.Mirror(from, to, perm) })
}

// touchedDriver opens sessions whose calls are touches.
func touchedDriver(open inventory.Opener, touch Touch) inventory.Opener {
	return func(ctx context.Context, root hostfs.DriverRoot) (session inventory.Session, err error) {
		err = touch("nvml.Open", func() error { session, err = open(ctx, root); return err })
		if err != nil {
			return nil, err
		}
		return touchedPartitioning{touchedSession{Session: session, touch: touch}}, nil
	}
}

type touchedSession struct {
	inventory.Session
	touch Touch
}

func (s touchedSession) Driver(ctx context.Context) (d gpu.Driver, err error) {
	err = s.touch("nvml.Driver", func() error { d, err = s.Session.Driver(ctx); return err })
	return d, err
}

func (s touchedSession) GPUs(ctx context.Context) (gpus []gpu.GPU, faults []gpu.Fault, err error) {
	err = s.touch("nvml.GPUs", func() error { gpus, faults, err = s.Session.GPUs(ctx); return err })
	return gpus, faults, err
}

func (s touchedSession) CommonEdits(ctx context.Context) (edits *specs.ContainerEdits, err error) {
	err = s.touch("nvml.CommonEdits", func() error { edits, err = s.Session.CommonEdits(ctx); return err })
	return edits, err
}

// touchedLocks are the real locks. The touch comes before the wait: a lock that was taken is dropped by the kernel when its
// process dies, which leaves nothing to tell.
type touchedLocks struct {
	plugin.Locks
	touch Touch
}

func (l touchedLocks) Claim(ctx context.Context, uid string) (func(), error) {
	if err := l.touch("lock.Claim", func() error { return nil }); err != nil {
		return nil, err
	}
	return l.Locks.Claim(ctx, uid)
}

func (l touchedLocks) GPUs(ctx context.Context, uuids []gpu.UUID) (func(), bool, error) {
	if err := l.touch("lock.GPUs", func() error { return nil }); err != nil {
		return nil, false, err
	}
	return l.Locks.GPUs(ctx, uuids)
}

// touchedRefresh is the look at all GPUs after a MIG mode has changed.
func touchedRefresh(refresh func(context.Context) error, touch Touch) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := touch("inventory.Refresh", func() error { return nil }); err != nil {
			return err
		}
		return refresh(ctx)
	}
}

// touchedStep is a kind of effect.
type touchedStep struct {
	step  prepare.Finder
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

func (s touchedStep) Find(ctx context.Context) (found []checkpoint.Step, err error) {
	err = s.touch("step.Find "+s.kind, func() error { found, err = s.step.Find(ctx); return err })
	return found, err
}

// Names touches nothing.
func (s touchedStep) Names(recorded, found checkpoint.Step) bool {
	return s.step.Names(recorded, found)
}
