package lifecycle

import (
	"context"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

// FaultPoint is called around each access to the machine. The site identifies it: "disk.Rename records", "lock.GPUs", "step.Undo
// persistence". It calls effect and returns its error, returns another error, or does not return.
type FaultPoint func(site string, effect func() error) error

// readOnlySites are the sites that change neither the disk, nor a GPU, nor the state of the API server.
var readOnlySites = map[string]bool{
	"lock.Claim": true, "lock.GPUs": true, "api.Config": true, "api.ResourceSlices": true, "api.Claims": true, "nvml.Open": true, "nvml.Driver": true,
	"nvml.GPUs": true, "nvml.CommonEdits": true, "nvml.MIGMode": true, "nvml.Instances": true, "nvml.Occupied": true, "nvml.Instance": true,
	"inventory.Refresh": true, "nvml.ComputeMode": true, "mps.Probe": true, "mps.Daemons": true, "mps.Limits": true,
}

// readOnly reports whether a site changes nothing.
func readOnly(site string) bool {
	call, _, _ := strings.Cut(site, " ")
	return readOnlySites[call] || call == "disk.Read" || call == "disk.List" || call == "step.Find"
}

// instrumentedDisk is the real disk with fault points.
type instrumentedDisk struct {
	disk.OS
	faultPoint FaultPoint
	// journal records every change; it may be nil. A disk with a journal writes in two fault points, because a process may be killed in
	// the middle of a file.
	journal func(change)
}

// changing makes a change of the disk at a fault point, and records it in the journal before anything else can happen.
func (d instrumentedDisk) changing(site string, c change, effect func() error) error {
	return d.faultPoint(site, func() error {
		err := effect()
		if err == nil && d.journal != nil {
			d.journal(c)
		}
		return err
	})
}

// at adds the kind of file to a call, so that sites are the same for every claim.
func at(call, path string) string {
	switch {
	case strings.Contains(path, "/collector/"):
		return "disk." + call + " " + countersSite(path)
	case strings.Contains(path, "/profiles/"):
		return "disk." + call + " " + profileSite(path)
	case filepath.Base(filepath.Dir(path)) == "metrics":
		return "disk." + call + " metrics"
	case strings.Contains(path, "claims"):
		return "disk." + call + " records"
	case strings.TrimSuffix(filepath.Base(path), disk.TempSuffix) == "layout.json":
		return "disk." + call + " layout"
	case slices.Contains(healthFiles, strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), disk.TempSuffix), damagedSuffix)):
		return "disk." + call + " " + strings.TrimSuffix(filepath.Base(path), disk.TempSuffix)
	case strings.HasSuffix(strings.TrimSuffix(path, disk.TempSuffix), ".json"):
		return "disk." + call + " specs"
	default:
		return "disk." + call + " " + filepath.Base(path)
	}
}

func (d instrumentedDisk) Read(path string) (data []byte, err error) {
	err = d.faultPoint(at("Read", path), func() error { data, err = d.OS.Read(path); return err })
	return data, err
}

func (d instrumentedDisk) List(dir string) (names []string, err error) {
	err = d.faultPoint(at("List", dir), func() error { names, err = d.OS.List(dir); return err })
	return names, err
}

func (d instrumentedDisk) Write(path string, data []byte, perm fs.FileMode, durable bool) error {
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

// Overwrite needs no free space: the site is not one of diskAllocations.
func (d instrumentedDisk) Overwrite(path string, data []byte) error {
	return d.changing(at("Overwrite", path), change{Call: wrote, Path: path, Data: data, Durable: true}, func() error { return d.OS.Overwrite(path, data) })
}

func (d instrumentedDisk) Rename(from, to string) error {
	return d.changing(at("Rename", to), change{Call: renamed, Path: from, To: to}, func() error { return d.OS.Rename(from, to) })
}

func (d instrumentedDisk) Remove(path string) error {
	return d.changing(at("Remove", path), change{Call: removed, Path: path}, func() error { return d.OS.Remove(path) })
}

func (d instrumentedDisk) SyncDir(dir string) error {
	return d.changing(at("SyncDir", dir), change{Call: synced, Path: dir}, func() error { return d.OS.SyncDir(dir) })
}

func (d instrumentedDisk) MakeDir(dir string, perm fs.FileMode) error {
	return d.changing(at("MakeDir", dir), change{Call: madeDir, Path: dir}, func() error { return d.OS.MakeDir(dir, perm) })
}

// Mirror copies the hook program to the host.
func (d instrumentedDisk) Mirror(from, to string, perm fs.FileMode) error {
	return d.faultPoint("hook.Mirror", func() error { return d.OS.Mirror(from, to, perm) })
}

// instrumentedDriver opens sessions with fault points.
func instrumentedDriver(open inventory.Opener, faultPoint FaultPoint) inventory.Opener {
	return func(ctx context.Context, root hostfs.DriverRoot) (session inventory.Session, err error) {
		err = faultPoint("nvml.Open", func() error { session, err = open(ctx, root); return err })
		if err != nil {
			return nil, err
		}
		return instrumentedPartitioning{instrumentedSession{Session: session, faultPoint: faultPoint}}, nil
	}
}

type instrumentedSession struct {
	inventory.Session
	faultPoint FaultPoint
}

func (s instrumentedSession) Driver(ctx context.Context) (d gpu.Driver, err error) {
	err = s.faultPoint("nvml.Driver", func() error { d, err = s.Session.Driver(ctx); return err })
	return d, err
}

func (s instrumentedSession) GPUs(ctx context.Context) (gpus []gpu.GPU, faults []gpu.Fault, err error) {
	err = s.faultPoint("nvml.GPUs", func() error { gpus, faults, err = s.Session.GPUs(ctx); return err })
	return gpus, faults, err
}

func (s instrumentedSession) CommonEdits(ctx context.Context) (edits *specs.ContainerEdits, err error) {
	err = s.faultPoint("nvml.CommonEdits", func() error { edits, err = s.Session.CommonEdits(ctx); return err })
	return edits, err
}

// instrumentedLocks are the real locks with fault points before they are taken: the kernel releases the locks of a killed process, so
// that later fault points would not differ.
type instrumentedLocks struct {
	plugin.Locks
	faultPoint FaultPoint
}

func (l instrumentedLocks) Claim(ctx context.Context, uid string) (func(), error) {
	if err := l.faultPoint("lock.Claim", func() error { return nil }); err != nil {
		return nil, err
	}
	return l.Locks.Claim(ctx, uid)
}

func (l instrumentedLocks) GPUs(ctx context.Context, uuids []gpu.UUID) (func(), bool, error) {
	if err := l.faultPoint("lock.GPUs", func() error { return nil }); err != nil {
		return nil, false, err
	}
	return l.Locks.GPUs(ctx, uuids)
}

// instrumentedRefresh is the inspection of all GPUs after a change of a MIG mode, with a fault point.
func instrumentedRefresh(refresh func(context.Context) error, faultPoint FaultPoint) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := faultPoint("inventory.Refresh", func() error { return nil }); err != nil {
			return err
		}
		return refresh(ctx)
	}
}

// instrumentedStep is a kind of effect with fault points.
type instrumentedStep struct {
	step       prepare.Finder
	kind       string
	faultPoint FaultPoint
}

func (s instrumentedStep) Do(ctx context.Context, step checkpoint.Step) (made json.RawMessage, err error) {
	err = s.faultPoint("step.Do "+s.kind, func() error { made, err = s.step.Do(ctx, step); return err })
	return made, err
}

func (s instrumentedStep) Undo(ctx context.Context, step checkpoint.Step) error {
	return s.faultPoint("step.Undo "+s.kind, func() error { return s.step.Undo(ctx, step) })
}

func (s instrumentedStep) Find(ctx context.Context) (found []checkpoint.Step, err error) {
	err = s.faultPoint("step.Find "+s.kind, func() error { found, err = s.step.Find(ctx); return err })
	return found, err
}

// Names is not a fault point.
func (s instrumentedStep) Names(recorded, found checkpoint.Step) bool {
	return s.step.Names(recorded, found)
}

// Create opens a file to write content into it.
func (d instrumentedDisk) Create(path string, perm fs.FileMode) (disk.File, error) {
	var f disk.File
	err := d.changing(at("Create", path), change{Call: wrote, Path: path}, func() (err error) { f, err = d.OS.Create(path, perm); return err })
	return &instrumentedFile{File: f, path: path, disk: d}, err
}

// instrumentedFile is a file with fault points.
type instrumentedFile struct {
	disk.File
	path    string
	disk    instrumentedDisk
	written []byte
}

func (f *instrumentedFile) Write(part []byte) (n int, err error) {
	whole := append(f.written, part...)
	err = f.disk.changing(at("Write", f.path), change{Call: wrote, Path: f.path, Data: whole}, func() error { n, err = f.File.Write(part); return err })
	f.written = whole
	return n, err
}

func (f *instrumentedFile) Sync() error {
	return f.disk.changing(at("Sync", f.path), change{Call: wrote, Path: f.path, Data: f.written, Durable: true}, f.File.Sync)
}
