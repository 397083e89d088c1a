package claimmetrics

import (
	"encoding/json"
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
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

const uid = "6f0c1d2e-0000-4000-8000-000000000000"

var (
	_ prepare.RecordEditor = Extension{}
	_ prepare.Lister       = Extension{}
)

// with are the extensions of a result with these options.
func with(options string) checkpoint.Extensions {
	return checkpoint.Extensions{"metrics": json.RawMessage(options)}
}

// exposing is the record of a claim with three devices; only the first device uses the option.
func exposing(claim string) *checkpoint.Record {
	return &checkpoint.Record{
		Claim: checkpoint.Claim{UID: claim},
		Results: []checkpoint.Result{
			{Request: "a", Extensions: with(`{"exposeInContainer":true}`)}, {Request: "b", Extensions: with(`{}`)}, {Request: "c"},
		},
		CDI: checkpoint.CDI{Devices: []string{"a", "b", "c"}},
	}
}

func TestEditsOf_ExposedDevice_MountedReadOnly(t *testing.T) {
	t.Parallel()
	edits, err := Extension{Dir: "/run/gpu.prism.dev/metrics"}.EditsOf(exposing(uid))
	require.NoError(t, err)
	assert.Equal(t, []cdi.DeviceEdits{{Device: "a", Source: "exposeInContainer", Edits: cdi.Edits{Mounts: []*specs.Mount{{
		HostPath: "/run/gpu.prism.dev/metrics/" + uid, ContainerPath: "/run/prism/metrics/" + uid,
		Options: []string{"ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"},
	}}}}}, edits)
}

// TestExtension_OptionsUnreadable_Error: a container without the directory that its claim asks for must not start.
func TestExtension_OptionsUnreadable_Error(t *testing.T) {
	t.Parallel()
	r := exposing(uid)
	r.Results[0].Extensions = with(`[]`)
	m := Extension{Disk: disk.OS{}, Dir: t.TempDir()}
	_, err := m.EditsOf(r)
	require.ErrorContains(t, err, "reading the data of extension metrics")
	require.ErrorContains(t, m.Ensure(r), "reading the data of extension metrics")
}

// TestExtension_NoUID_NoDirectory: nothing but the UID of a claim names a directory.
func TestExtension_NoUID_NoDirectory(t *testing.T) {
	t.Parallel()
	m := Extension{Disk: disk.OS{}, Dir: filepath.Join(t.TempDir(), "metrics")}
	outside := filepath.Join(filepath.Dir(m.Dir), "hook.sock")
	require.NoError(t, os.MkdirAll(m.Dir, 0o755))
	require.NoError(t, os.WriteFile(outside, nil, 0o600))
	for _, name := range []string{"../hook.sock", "..", ".", "", "a", uid + "/..", uid + "\n", "x" + uid} {
		edits, err := m.EditsOf(exposing(name))
		require.NoError(t, err)
		assert.Empty(t, edits, name)
		require.NoError(t, m.Ensure(exposing(name)))
		require.NoError(t, m.RemoveFiles(name))
	}
	assert.FileExists(t, outside)
	names, err := disk.OS{}.List(m.Dir)
	require.NoError(t, err)
	assert.Empty(t, names)
}

func TestMakes_DirectoryOfClaim_Alone(t *testing.T) {
	t.Parallel()
	m := Extension{Dir: "/run/gpu.prism.dev/metrics"}
	assert.True(t, m.Makes(m.Dir+"/"+uid))
	for _, path := range []string{m.Dir, m.Dir + "/other", "/run/gpu.prism.dev/" + uid, m.Dir + "/" + uid + "/gpu.prom"} {
		assert.False(t, m.Makes(path), path)
	}
}

// TestEnsure_ExposedClaim_KeptAndRemoved: files of the exporter stay when the claim is prepared again.
func TestEnsure_ExposedClaim_KeptAndRemoved(t *testing.T) {
	t.Parallel()
	m := Extension{Disk: disk.OS{}, Dir: filepath.Join(t.TempDir(), "run", "metrics")}
	at := filepath.Join(m.Dir, uid)
	require.NoError(t, m.Ensure(exposing(uid)))
	info, err := os.Stat(at)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeDir|0o755, info.Mode())
	require.NoError(t, os.WriteFile(filepath.Join(at, "gpu.prom"), nil, 0o600))
	require.NoError(t, m.Ensure(exposing(uid)))
	assert.FileExists(t, filepath.Join(at, "gpu.prom"))

	const other = "6f0c1d2e-0000-4000-8000-000000000001"
	for _, name := range []string{other, "lost+found"} {
		require.NoError(t, os.Mkdir(filepath.Join(m.Dir, name), 0o755))
	}
	uids, err := m.Claims()
	require.NoError(t, err)
	assert.Equal(t, []string{uid, other}, uids, "garbage collection finds directories without a spec")

	require.NoError(t, m.RemoveFiles(uid))
	assert.NoDirExists(t, at)
	require.NoError(t, m.RemoveFiles(uid))
}

func TestEnsure_OtherClaim_NoDirectory(t *testing.T) {
	t.Parallel()
	m := Extension{Disk: disk.OS{}, Dir: filepath.Join(t.TempDir(), "metrics")}
	r := exposing(uid)
	r.Results = r.Results[1:]
	require.NoError(t, m.Ensure(r))
	assert.NoDirExists(t, m.Dir)
}

// refusedDisk is a disk that makes, lists and removes no directory.
type refusedDisk struct{ disk.OS }

var errRefusedDisk = errors.New("the disk is read-only")

func (refusedDisk) MakeDir(string, fs.FileMode) error { return errRefusedDisk }
func (refusedDisk) RemoveDir(string) error            { return errRefusedDisk }
func (refusedDisk) List(string) ([]string, error)     { return nil, errRefusedDisk }

func TestExtension_DiskFails_Errors(t *testing.T) {
	t.Parallel()
	m := Extension{Disk: refusedDisk{}, Dir: "/run/metrics"}
	require.EqualError(t, m.Ensure(exposing(uid)), "making the metrics directory of claim "+uid+": the disk is read-only")
	require.EqualError(t, m.RemoveFiles(uid), "removing the metrics directory of claim "+uid+": the disk is read-only")
	_, err := m.Claims()
	require.EqualError(t, err, "listing the metrics directories in /run/metrics: the disk is read-only")
}
