package allocation

import (
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestAllocations_Since_FirstRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	since := func(i int) time.Time { return w.tracker.Allocations().List[i].Since }
	w.put(record("a", whole("gpu-0")))
	w.read()
	require.Zero(t, since(0), "it was prepared before this process began, which has samples of no other one")
	w.put(record("b", whole("gpu-1")))
	w.read()
	require.Zero(t, since(0))
	first := since(1)
	require.False(t, first.IsZero())
	w.read()
	require.Equal(t, first, since(1), "a record read again")
	w.put(in(checkpoint.Releasing, record("b", whole("gpu-1"))))
	w.read()
	require.Equal(t, first, since(1), "it is unprepared")
	w.put(record("b", whole("gpu-1")))
	w.read()
	second := since(1)
	require.True(t, second.After(first), "prepared again")
	require.NoError(t, w.records.Delete("b"))
	w.read()
	w.put(record("b", whole("gpu-1")))
	w.read()
	require.True(t, since(1).After(second), "prepared again")
}

// TestAllocations_FirstReadFails_LaterClaimsAreNew: the plugin may start after the exporter.
func TestAllocations_FirstReadFails_LaterClaimsAreNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	dir := filepath.Join(w.dir, "plugin")
	require.NoError(t, os.Rename(dir, dir+"-later"))
	w.read()
	require.NoError(t, os.Rename(dir+"-later", dir))
	w.put(record("a", whole("gpu-0")))
	w.read()
	require.False(t, w.tracker.Allocations().List[0].Since.IsZero())
}

func TestAllocations_Records_PreparedDevices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	share := checkpoint.Result{
		Request: "train", Pool: "node", Device: "gpu-1-mps", ShareID: "s1", Type: gpu.TypeMPS, GPUUUID: "GPU-1", Share: &checkpoint.Share{Replicas: 4},
	}
	require.NoError(t, share.Extensions.Set(claim.KindMetrics, gpu.MetricsOptions{
		Sets: []string{"Basic", "Memory"}, Interval: 1e9, Labels: map[string]string{"team": "a"}, PerProcess: true, ExposeInContainer: true,
	}))
	admin := whole("gpu-2")
	admin.Admin = true
	monitor := checkpoint.Result{Request: "m", Pool: "node/monitor", Device: "monitor", Type: gpu.TypeMonitor}
	perfmon := checkpoint.Result{Request: "p", Pool: "node/monitor", Device: "gpu-0-perfmon", Type: gpu.TypePerfmon, GPUUUID: "GPU-0"}
	another := record("d", whole("gpu-5"))
	another.BootID = "another boot"
	client := migDevice("gpu-0-mig-2", "MIG-2")
	require.NoError(t, client.Extensions.Set(claim.KindMPS, claim.MPSUse{}))
	w.put(record("a", whole("gpu-0"), share), record("b", migDevice("gpu-0-mig", "MIG-1"), admin, monitor, perfmon),
		in(checkpoint.Intent, record("c", whole("gpu-4"))), another, in(checkpoint.Releasing, record("e", client)))
	w.read()
	want := []metrics.Allocation{
		{Namespace: "ns", Claim: "claim-a", ClaimUID: "a", Request: "gpu", Pool: "node", Device: "gpu-0", Type: gpu.TypeGPU, GPU: "GPU-gpu-0"},
		{
			Namespace: "ns", Claim: "claim-a", ClaimUID: "a", Request: "train", Pool: "node", Device: "gpu-1-mps", ShareID: "s1", Type: gpu.TypeMPS, GPU: "GPU-1", ThroughServer: true,
			Options: gpu.MetricsOptions{
				Sets: []string{"Basic", "Memory"}, Interval: time.Second, Labels: map[string]string{"team": "a"}, PerProcess: true, ExposeInContainer: true,
			},
		},
		{Namespace: "ns", Claim: "claim-b", ClaimUID: "b", Request: "gpu", Pool: "node", Device: "gpu-0-mig", Type: gpu.TypeMIG, GPU: "GPU-0", MIG: "MIG-1"},
		{
			Namespace: "ns", Claim: "claim-e", ClaimUID: "e", Request: "gpu", Pool: "node", Device: "gpu-0-mig-2", Type: gpu.TypeMIG, GPU: "GPU-0",
			MIG: "MIG-2", ThroughServer: true,
		},
	}
	assert.Equal(t, want, w.list())
	assert.Equal(t, []Want{{Sets: []string{"Basic", "Memory"}, Interval: time.Second, Claim: "a"}}, w.tracker.Wanted("GPU-1"))
	assert.Equal(t, []Want{{MIG: "MIG-1", Claim: "b"}}, w.tracker.Wanted("GPU-0"), "a claim that is being unprepared wants nothing")
	assert.Empty(t, w.tracker.Wanted("GPU-none"))
	assert.True(t, w.source(SourceRecords).OK)

	before := w.tracker.Allocations()
	w.read()
	assert.Same(t, before, w.tracker.Allocations(), "nothing has changed")
	require.NoError(t, w.records.Delete("a"))
	w.read()
	assert.Greater(t, w.tracker.Allocations().Generation, before.Generation)
}

// TestAllocations_DamagedRecords_CountedAndNamed: the plugin moves damaged records aside; a reader does not.
func TestAllocations_DamagedRecords_CountedAndNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	released := 0
	w.tracker.OnReleasing(func(gpu.UUID, string, bool) { released++ })
	w.put(record("a", whole("gpu-0")), record("b", migDevice("mig", "MIG-1")))
	w.read()
	require.Len(t, w.list(), 2)
	path := filepath.Join(w.dir, "plugin/claims/b.json")
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, good[:len(good)-5], 0o600))
	w.read()
	assert.Len(t, w.list(), 1, "of the other one nothing is known")
	source := w.source(SourceRecords)
	assert.False(t, source.OK)
	assert.Contains(t, source.Error, "1 records cannot be used")
	assert.Contains(t, source.Error, "claim b")
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, entries, 2, "nothing was renamed")
	assert.Zero(t, released, "the MIG device stays")

	require.NoError(t, os.WriteFile(path, good, 0o600))
	w.read()
	assert.Len(t, w.list(), 2)
	assert.True(t, w.source(SourceRecords).OK)
}

// TestRun_Releasing_ReportedOnce: destroying a MIG device requires that the exporter releases it.
func TestRun_Releasing_ReportedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	var mu sync.Mutex
	released := map[gpu.UUID][]bool{} // whether the plugin destroys them
	reported := func() map[gpu.UUID][]bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(released)
	}
	w.tracker.OnReleasing(func(mig gpu.UUID, claim string, destroyed bool) {
		assert.Contains(t, []string{"a", "b"}, claim)
		if assert.Empty(t, w.tracker.Wanted("GPU-0"), "nothing makes a sampler begin again") {
			mu.Lock()
			defer mu.Unlock()
			released[mig] = append(released[mig], destroyed)
		}
	})
	static := migDevice("static", "MIG-static")
	static.MIG.Static = true
	static.GPUUUID = "GPU-7"
	w.run()
	w.put(record("a", migDevice("mig", "MIG-1"), static, whole("gpu-1")))
	w.eventually("the record is read", func() bool { return len(w.list()) == 3 })
	w.put(in(checkpoint.Releasing, record("a", migDevice("mig", "MIG-1"), static, whole("gpu-1"))))
	w.eventually("it is reported", func() bool { return len(reported()) == 2 })
	assert.Len(t, w.list(), 3, "until it ends")
	require.NoError(t, w.records.Delete("a"))
	w.eventually("it ended", func() bool { return len(w.list()) == 0 })
	assert.Equal(t, map[gpu.UUID][]bool{"MIG-1": {true}, "MIG-static": {false}}, reported())

	// If two changes are read as one, the record is gone at once.
	w.put(record("b", migDevice("mig", "MIG-1")))
	w.eventually("the record is read", func() bool { return len(w.list()) == 1 })
	require.NoError(t, w.records.Delete("b"))
	w.eventually("it ended", func() bool { return len(reported()["MIG-1"]) == 2 })
}

// TestAllocations_DeviceMadeAgain_OfTheNewClaimAlone: a recreated MIG device has its old UUID, and records are not read at the same time.
func TestAllocations_DeviceMadeAgain_OfTheNewClaimAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	old, made := record("a", migDevice("mig", "MIG-1")), record("b", migDevice("mig", "MIG-1"))
	w.put(old)
	w.kubelet.set(pod("old", map[string]*checkpoint.Record{"main": old}), pod("new", map[string]*checkpoint.Record{"main": made}))
	w.read()
	require.Len(t, w.list(), 1)
	assert.Equal(t, "old", w.list()[0].Containers[0].Pod)
	w.put(in(checkpoint.Releasing, old))
	w.read()
	require.Len(t, w.list(), 1)
	assert.Empty(t, w.list()[0].Containers, "they have exited, whatever the kubelet lists")
	w.put(in(checkpoint.Releasing, old), made)
	w.read()
	require.Len(t, w.list(), 1)
	assert.Equal(t, "b", w.list()[0].ClaimUID)
	require.Len(t, w.list()[0].Containers, 1)
	assert.Equal(t, "new", w.list()[0].Containers[0].Pod)
	assert.Equal(t, []Want{{MIG: "MIG-1", Claim: "b"}}, w.tracker.Wanted("GPU-0"))
}

// TestRun_DirectoryOfRecords_MayComeLater: the exporter may start before the plugin; it watches the current directory.
func TestRun_DirectoryOfRecords_MayComeLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	claims := filepath.Join(w.dir, "plugin/claims")
	require.NoError(t, os.Remove(claims))
	w.run()
	w.eventually("its absence is reported", func() bool { return w.source(SourceRecords).Error != notRead && !w.source(SourceRecords).OK })
	for _, uid := range []string{"a", "b"} {
		w.open()
		w.put(record(uid, whole("gpu-0")))
		w.eventually("the record is read", func() bool { return len(w.list()) == 1 && w.list()[0].ClaimUID == uid })
		require.NoError(t, os.RemoveAll(claims))
		w.eventually("its absence is reported", func() bool { return !w.source(SourceRecords).OK })
	}
}
