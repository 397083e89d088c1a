package cdi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// exposing is the record of a claim with three devices, of which the first has the option.
func exposing(claim string) *checkpoint.Record {
	return &checkpoint.Record{
		Claim: checkpoint.Claim{UID: claim},
		Results: []checkpoint.Result{
			{Request: "a", Metrics: &checkpoint.Metrics{ExposeInContainer: true}}, {Request: "b", Metrics: &checkpoint.Metrics{}}, {Request: "c"},
		},
		CDI: checkpoint.CDI{Devices: []string{"a", "b", "c"}},
	}
}

// files are the files of claims in a temporary directory.
func files(t *testing.T) Files {
	t.Helper()
	root := t.TempDir()
	dir, err := OpenDir(disk.OS{}, filepath.Join(root, "cdi"), Kind("gpu.prism.dev"))
	require.NoError(t, err)
	return Files{Dir: dir, Metrics: Metrics{Disk: disk.OS{}, Dir: filepath.Join(root, "run", "metrics")}}
}

// specOf is a spec with the mounts of the record's devices.
func specOf(m Metrics, r *checkpoint.Record) *specs.Spec {
	spec := &specs.Spec{Kind: Kind("gpu.prism.dev")}
	for _, e := range m.Edits(r) {
		spec.Devices = append(spec.Devices, specs.Device{Name: e.Device, ContainerEdits: specs.ContainerEdits{Mounts: e.Edits.Mounts}})
	}
	return spec
}

func TestMetricsEdits_ExposedDevice_MountedReadOnly(t *testing.T) {
	t.Parallel()
	m := Metrics{Dir: "/run/gpu.prism.dev/metrics"}
	assert.Equal(t, []DeviceEdits{{Device: "a", Source: "exposeInContainer", Edits: Edits{Mounts: []*specs.Mount{{
		HostPath: "/run/gpu.prism.dev/metrics/" + uid, ContainerPath: "/run/prism/metrics/" + uid,
		Options: []string{"ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"},
	}}}}}, m.Edits(exposing(uid)))
}

// TestMetrics_NoUID_NoDirectory: nothing but the UID of a claim names a directory.
func TestMetrics_NoUID_NoDirectory(t *testing.T) {
	t.Parallel()
	f := files(t)
	outside := filepath.Join(filepath.Dir(f.Metrics.Dir), "hook.sock")
	require.NoError(t, os.MkdirAll(f.Metrics.Dir, 0o755))
	require.NoError(t, os.WriteFile(outside, nil, 0o600))
	for _, name := range []string{"../hook.sock", "..", ".", "", "a", uid + "/..", uid + "\n", "x" + uid} {
		assert.Empty(t, f.Metrics.Edits(exposing(name)), name)
		spec := &specs.Spec{Devices: []specs.Device{{ContainerEdits: specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: f.Metrics.of(name)}}}}}}
		require.NoError(t, f.Metrics.ensure(name, spec))
		require.NoError(t, f.Metrics.remove(name))
	}
	assert.FileExists(t, outside)
	names, err := disk.OS{}.List(f.Metrics.Dir)
	require.NoError(t, err)
	assert.Empty(t, names)
}

func TestMetricsExists_DirectoryOfClaim_MadeLater(t *testing.T) {
	t.Parallel()
	m := Metrics{Dir: "/run/gpu.prism.dev/metrics"}
	exists := m.Exists(func(string) error { return gpu.ErrNotFound })
	require.NoError(t, exists(m.Dir+"/"+uid))
	for _, path := range []string{m.Dir, m.Dir + "/other", "/run/gpu.prism.dev/" + uid, m.Dir + "/" + uid + "/gpu.prom"} {
		require.ErrorIs(t, exists(path), gpu.ErrNotFound, path)
	}
}

// TestFiles_ExposedClaim_DirectoryWithSpec: it is made with the spec, also again, keeps what the exporter wrote, and goes with the spec.
func TestFiles_ExposedClaim_DirectoryWithSpec(t *testing.T) {
	t.Parallel()
	f := files(t)
	at, spec := filepath.Join(f.Metrics.Dir, uid), specOf(f.Metrics, exposing(uid))
	require.NoError(t, f.Write(uid, spec))
	info, err := os.Stat(at)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeDir|0o755, info.Mode())
	require.NoError(t, os.WriteFile(filepath.Join(at, "gpu.prom"), nil, 0o600))
	require.NoError(t, f.Write(uid, spec))
	assert.FileExists(t, filepath.Join(at, "gpu.prom"))

	require.NoError(t, os.RemoveAll(f.Metrics.Dir))
	require.NoError(t, f.Write(uid, spec), "the spec is there, and the directory is not")
	assert.DirExists(t, at)

	require.NoError(t, os.WriteFile(filepath.Join(at, "gpu.prom"), nil, 0o600))
	require.NoError(t, f.Remove(uid))
	assert.NoDirExists(t, at)
	require.NoError(t, f.Remove(uid))
	uids, err := f.Claims()
	require.NoError(t, err)
	assert.Empty(t, uids)
}

func TestFiles_OtherClaim_NoDirectory(t *testing.T) {
	t.Parallel()
	f := files(t)
	r := exposing(uid)
	r.Results[0].Metrics.ExposeInContainer = false
	require.NoError(t, f.Write(uid, specOf(f.Metrics, r)))
	assert.NoDirExists(t, f.Metrics.Dir)
}

// TestFilesClaims_SpecOrDirectory_Listed: either alone is found by garbage collection.
func TestFilesClaims_SpecOrDirectory_Listed(t *testing.T) {
	t.Parallel()
	f := files(t)
	const other = "6f0c1d2e-0000-4000-8000-000000000001"
	require.NoError(t, f.Dir.Write("a", &specs.Spec{}))
	require.NoError(t, f.Write(uid, specOf(f.Metrics, exposing(uid))))
	for _, name := range []string{other, "lost+found"} {
		require.NoError(t, os.Mkdir(filepath.Join(f.Metrics.Dir, name), 0o755))
	}
	uids, err := f.Claims()
	require.NoError(t, err)
	assert.Equal(t, []string{uid, other, "a"}, uids)
}

// refusedDisk is a disk that makes, lists and removes no directory.
type refusedDisk struct{ disk.OS }

var errRefusedDisk = errors.New("the disk is read-only")

func (refusedDisk) MakeDir(string, fs.FileMode) error { return errRefusedDisk }
func (refusedDisk) RemoveDir(string) error            { return errRefusedDisk }
func (refusedDisk) List(string) ([]string, error)     { return nil, errRefusedDisk }

func TestFiles_DirectoryNotMade_NoSpec(t *testing.T) {
	t.Parallel()
	f := files(t)
	f.Metrics.Disk = refusedDisk{}
	require.EqualError(t, f.Write(uid, specOf(f.Metrics, exposing(uid))), "making the metrics directory of claim "+uid+": the disk is read-only")
	uids, err := f.Dir.Claims()
	require.NoError(t, err)
	assert.Empty(t, uids)
	require.ErrorIs(t, f.Remove(uid), errRefusedDisk)
	_, err = f.Claims()
	require.ErrorIs(t, err, errRefusedDisk)
}
