package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

var ignoreUnknown = cmpopts.IgnoreUnexported(Record{}, Claim{}, Result{}, Step{}, MIG{}, Share{}, CDI{}, PendingCleanup{})

// whole is the record of a claim for one whole GPU.
func whole(uid string) *Record {
	return &Record{
		Claim: Claim{UID: uid, Namespace: "default", Name: "one-gpu"}, BootID: "boot-1", Writer: "v0.1.0", State: Done,
		Results: []Result{{
			Request: "gpu", Pool: "n0", Device: "gpu-3f2a9c1b", Type: gpu.TypeGPU,
			GPUUUID: "GPU-3f2a9c1b-aaaa-bbbb-cccc-000000000000", PCIBusID: "0000:3b:00.0",
		}},
		CDI: CDI{Kind: "k8s.gpu.prism.dev/claim", Devices: []string{uid + "-gpu-3f2a9c1b-GPU-3f2a9c1b-aaaa-bbbb-cccc-000000000000"}},
	}
}

// full is a record that uses every field.
func full() *Record {
	r := whole("6f0c1d2e-0000-4000-8000-000000000001")
	r.State = Releasing
	r.Results[0].ShareID, r.Results[0].Admin, r.Results[0].Consumed = "share-1", true, map[string]string{"memory": "2Gi"}
	r.Steps = []Step{{Kind: "mig", Target: r.Results[0].GPUUUID, Args: json.RawMessage(`{"start":4}`), Made: json.RawMessage(`{"gi":3}`), Undo: "in use"}}
	r.PendingCleanup = &PendingCleanup{Since: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Cause: "in use"}
	return r
}

// share is the record of a claim for one of four shares of a GPU.
func share() *Record {
	r := whole("6f0c1d2e-0000-4000-8000-000000000002")
	r.Results[0].Type, r.Results[0].Device, r.Results[0].ShareID = gpu.TypeTimeSlice, "gpu-3f2a9c1b-timeslice", "share-1"
	r.Results[0].Consumed, r.Results[0].Share = map[string]string{"shares": "1", "memory": "0"}, &Share{Replicas: 4, Name: "gpu-shared"}
	return r
}

// newStore is a store in a directory of its own.
func newStore(t *testing.T) (s *Store, dir string) {
	t.Helper()
	dir = t.TempDir()
	s, err := Open(disk.OS{}, dir)
	require.NoError(t, err)
	return s, dir
}

// TestRecord_ShareOrMIGDevice_Encoded: an older plugin that changes the record keeps everything of a newer one's.
func TestRecord_ShareOrMIGDevice_Encoded(t *testing.T) {
	t.Parallel()
	ofMIG := whole("uid-1")
	ofMIG.Results[0].Type = gpu.TypeMIG
	ofMIG.Results[0].MIG = &MIG{
		Profile: 9, Name: "3g.40gb", Placement: gpu.Placement{Start: 4, Size: 4}, Static: true,
		Identity: gpu.MIGIdentity{GPUInstance: 2, ComputeInstance: 1, UUID: "MIG-1"},
	}
	ofMIG.Steps = []Step{{Kind: "mig", Target: ofMIG.Results[0].GPUUUID, Device: ofMIG.Results[0].Device}}
	for key, want := range map[string]*Record{`"replicas":4`: share(), `"static":true`: ofMIG} {
		body := bytes.Replace(bodyOf(t, want), []byte(key), []byte(key+`,"later":{"a":1}`), 1)
		got, err := Decode(sealed(schema, body))
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(want, got, ignoreUnknown), key)
		assert.Contains(t, string(bodyOf(t, got)), `"later":{"a":1}`, key)
	}
}

func TestStore_PutLoadDelete_Durable(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t)
	_, err := s.Load("absent")
	require.ErrorIs(t, err, gpu.ErrNotFound)
	require.NoError(t, s.Delete("absent"))

	want := whole("uid-1")
	require.NoError(t, s.Put(want))
	got, err := s.Load("uid-1")
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(want, got, ignoreUnknown))

	info, err := os.Stat(filepath.Join(dir, "claims", "uid-1.json"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(filepath.Join(dir, "claims"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	require.NoError(t, s.Delete("uid-1"))
	records, damaged, err := s.All()
	require.NoError(t, err)
	assert.Empty(t, records)
	assert.Empty(t, damaged)
}

func TestStore_RecordOfAnotherClaim_Damaged(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t)
	require.NoError(t, s.Put(whole("one")))
	require.NoError(t, os.Rename(filepath.Join(dir, "claims", "one.json"), filepath.Join(dir, "claims", "two.json")))
	_, err := s.Load("two")
	require.ErrorIs(t, err, ErrDamaged)
}

func TestStore_UIDOutsideDirectory_Refused(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for _, uid := range []string{"", "../x", "a/b", ".hidden", "a\x00b"} {
		_, err := s.Load(uid)
		require.ErrorContains(t, err, "cannot name a record file", "%q", uid)
	}
}

// refusing is a disk that fails to read one file.
type refusing struct {
	disk.OS
	hidden string
}

func (d refusing) Read(path string) ([]byte, error) {
	if filepath.Base(path) == d.hidden {
		return nil, errors.New("input/output error")
	}
	return d.OS.Read(path)
}

// TestStore_UnreadableRecord_NotDamaged: the record may be valid, and stays in place.
func TestStore_UnreadableRecord_NotDamaged(t *testing.T) {
	t.Parallel()
	good, dir := newStore(t)
	require.NoError(t, good.Put(whole("a")))
	require.NoError(t, good.Put(whole("b")))
	bad, err := Open(refusing{hidden: "a.json"}, dir)
	require.NoError(t, err)
	records, damaged, err := bad.All()
	require.ErrorIs(t, err, ErrUnreadable)
	assert.Empty(t, damaged)
	require.Len(t, records, 1)
	assert.Equal(t, "b", records[0].Claim.UID)
	_, err = bad.Load("a")
	require.NotErrorIs(t, err, ErrDamaged)
	_, err = good.Load("a")
	require.NoError(t, err)
}
