package layout

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	mpsDevice = first + "-mps"
	// withMPS has MPS shares of the first GPU for two claims, in one namespace.
	withMPS = `[{select: {indices: [0]}, modes: [mps], mps: {replicas: 2, shmSize: 1Gi, namespaces: [team-a], resourceName: x.com/a}}]`
	// withWholeAndMPS also advertises the GPU whole.
	withWholeAndMPS = `[{select: {indices: [0]}, modes: [whole, mps], mps: {replicas: 2, shmSize: 1Gi, namespaces: [team-a]}}]`
)

// holdsMPS is the record of a claim for one of two MPS shares of the first GPU.
func holdsMPS() *checkpoint.Record {
	r := holds(ownPool, mpsDevice)
	r.Results[0].Type, r.Results[0].ShareID, r.Results[0].Share = gpu.TypeMPS, "share-1", &checkpoint.Share{Replicas: 2}
	r.Results[0].Extensions = checkpoint.Extensions{"mps": []byte(`{"daemon":"aaaaaaaa","memoryMiB":2048}`)}
	return r
}

// mps is the present MPS sharing of the first GPU, as claims are planned with it.
func (d *fixture) mps(t *testing.T) gpu.MPSSharing {
	t.Helper()
	s := d.now()
	require.NoError(t, s.Err)
	modes := s.Layout.Of(&s.Node.GPUs[0])
	require.NotNil(t, modes.MPS)
	return *modes.MPS
}

// TestMPS_SettingsChange_AppliedAtOnce: no claim has to end for another size of /dev/shm, other namespaces and another resource name, which are
// saved.
func TestMPS_SettingsChange_AppliedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, withMPS, holdsMPS())
		stop := d.runs(t)
		defer stop()
		after(2 * retryFirst)
		assert.Equal(t, []string{ownPool, mpsDevice}, d.advertised(t))
		before := d.mps(t)
		assert.True(t, before.Allows("team-a"))
		assert.False(t, before.Allows("team-b"))
		d.entries = strings.NewReplacer("1Gi", "2Gi", "team-a", "team-b", "x.com/a", "x.com/b").Replace(withMPS)
		d.Reload()
		after(changeWait)
		now := d.mps(t)
		assert.Equal(t, int64(2<<30), now.ShmBytes)
		assert.True(t, now.Allows("team-b"))
		assert.False(t, now.Allows("team-a"))
		assert.Equal(t, "x.com/b", now.Resource)
		assert.Equal(t, before.MPSSize, now.MPSSize)
		assert.Empty(t, d.leaving(t))
		after(drainInterval + roundInterval)
		assert.Equal(t, &now, d.saved.layout[firstUUID].MPS)
	})
}

// TestMPS_SizesChange_WaitForRelease: claims keep the sizes with which they were allocated, so that the next control daemon uses the new
// ones. Meanwhile settings that belong to no device apply, also if they change during the change; the last ones apply when it is complete.
func TestMPS_SizesChange_WaitForRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, withMPS, holdsMPS())
		stop := d.runs(t)
		defer stop()
		after(2 * retryFirst)
		before := d.mps(t)
		for _, namespace := range []string{"team-b", "team-c"} {
			d.entries = strings.NewReplacer("replicas: 2", "replicas: 3", "team-a", namespace).Replace(withMPS)
			d.Reload()
			after(time.Minute)
			assert.Contains(t, d.leaving(t), gpu.PoolDevice{Pool: ownPool, Device: mpsDevice})
			assert.Equal(t, before.MPSSize, d.mps(t).MPSSize)
			assert.Equal(t, []string{namespace}, d.mps(t).Namespaces)
			target, _ := d.worker.state.rollout.Target(firstUUID)
			assert.Equal(t, []string{namespace}, target.MPS.Namespaces)
		}
		handOver()
		d.records = nil
		after(time.Minute)
		assert.Equal(t, 3, d.mps(t).Replicas)
		assert.Equal(t, []string{"team-c"}, d.mps(t).Namespaces)
		assert.Empty(t, d.leaving(t))
		assert.Equal(t, 3, d.saved.layout[firstUUID].MPS.Replicas)
	})
}

// TestMPS_RestartWithoutConfiguration_SharesStay, as they were saved; and other devices of the GPU wait for their claims.
func TestMPS_RestartWithoutConfiguration_SharesStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, withWholeAndMPS, holdsMPS())
		stop := d.runs(t)
		after(2 * retryFirst)
		was := d.mps(t)
		stop()
		d.restart(t)
		d.read = errBad
		require.False(t, d.load(t))
		d.probe(t)
		assert.Equal(t, []string{ownPool, first, mpsDevice}, d.advertised(t))
		assert.Equal(t, was, d.mps(t))

		d.read, d.entries = nil, onlyWhole
		require.True(t, d.load(t))
		stop = d.runs(t)
		defer stop()
		after(time.Minute)
		assert.Equal(t, []string{ownPool, first, mpsDevice}, d.advertised(t))
		assert.Contains(t, d.leaving(t), gpu.PoolDevice{Pool: ownPool, Device: mpsDevice})
		handOver()
		d.records = nil
		after(time.Minute)
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
	})
}

// TestMPS_ShareWithoutSavedLayout_NothingBesideIt: the configuration has shares of the GPU again, which the claim is one of, or the GPU is withheld.
func TestMPS_ShareWithoutSavedLayout_NothingBesideIt(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{ownPool, mpsDevice}, opened(t, withMPS, holdsMPS()).advertised(t))
	assert.Equal(t, []string{ownPool, first, mpsDevice}, opened(t, withWholeAndMPS, holdsMPS()).advertised(t), "the scheduler keeps them apart")
	assert.Equal(t, []string{"n0"}, opened(t, onlyWhole, holdsMPS()).advertised(t))

	d := opened(t, withWholeAndMPS, holdsMPS())
	d.CountersUnsupported()
	assert.Equal(t, []string{ownPool}, d.advertised(t), "nothing keeps whole GPU and shares apart, and the GPU comes first")
	d = opened(t, withMPS, holdsMPS())
	d.CountersUnsupported()
	assert.Equal(t, []string{ownPool, mpsDevice}, d.advertised(t))
}

// TestFile_MPS_LoadedAgain as it was saved, so that it is not saved again, and by a version that does not know the key.
func TestFile_MPS_LoadedAgain(t *testing.T) {
	t.Parallel()
	file := File{Disk: disk.OS{}, Dir: t.TempDir()}
	sharing := gpu.MPSSharing{ShareName: "a", Resource: "x.com/a", ShmBytes: 1 << 30, Namespaces: []string{"team-a"}, MPSSize: gpu.MPSSize{
		Replicas: 2, Memory: gpu.MPSMemory{Total: 5, Default: 4, Min: 2, Max: 4, Step: 1}, Threads: gpu.MPSThreads{Default: 10, Total: 200},
	}}
	everywhere := sharing
	everywhere.Namespaces = nil
	want := Saved{GPUs: gpu.Layout{firstUUID: {Whole: true, MPS: &sharing}, "GPU-b": {MPS: &everywhere}}}
	require.NoError(t, file.Save(want))
	got, err := file.Load()
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.True(t, got.same(want))
	other := sharing
	other.Namespaces = []string{"team-b"}
	assert.False(t, got.same(Saved{GPUs: gpu.Layout{firstUUID: {Whole: true, MPS: &other}, "GPU-b": {MPS: &everywhere}}}))
}

// TestFile_KeysOfLaterVersions_LeftOut: that is how a version without MPS reads a layout with it. Devices that its records name are
// withheld.
func TestFile_KeysOfLaterVersions_LeftOut(t *testing.T) {
	t.Parallel()
	file := File{Disk: disk.OS{}, Dir: t.TempDir()}
	require.NoError(t, disk.Replace(file.Disk, file.Dir+"/"+fileName,
		[]byte(`{"version":1,"gpus":{"GPU-b":{"Whole":true,"Later":{"Replicas":2,"Memory":{"Total":1}}}}}`), 0o600, false))
	got, err := file.Load()
	require.NoError(t, err)
	assert.Equal(t, Saved{GPUs: gpu.Layout{"GPU-b": {Whole: true}}}, got)
}
