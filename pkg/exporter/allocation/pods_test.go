package allocation

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// podsOf are "pod/container" of an allocation.
func podsOf(a metrics.Allocation) []string {
	pods := []string{}
	for _, container := range a.Containers {
		pods = append(pods, container.Pod+"/"+container.Name)
	}
	return pods
}

func share(device, id string) checkpoint.Result {
	r := whole(device)
	r.Type, r.ShareID, r.Share = gpu.TypeTimeSlice, id, &checkpoint.Share{Replicas: 2}
	return r
}

func TestAllocations_ContainersOfPods_ByClaimAndDevice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	two, shares := record("a", whole("gpu-0"), whole("gpu-1")), record("b", share("gpu-2", "s1"), share("gpu-2", "s2"))
	w.put(two, shares)
	namesake := record("z", whole("gpu-0"))
	namesake.Claim.Name = two.Claim.Name
	unprepared := pod("waits", map[string]*checkpoint.Record{"main": two})
	for _, resource := range unprepared.Containers[0].DynamicResources[0].ClaimResources {
		resource.CdiDevices = nil
	}
	// A kubelet that knows which request a container names lists only that request; one without share ids lists the device.
	one := pod("one", map[string]*checkpoint.Record{"main": two})
	one.Containers[0].DynamicResources[0].ClaimResources = one.Containers[0].DynamicResources[0].ClaimResources[1:]
	older := pod("older", map[string]*checkpoint.Record{"main": shares})
	for _, resource := range older.Containers[0].DynamicResources[0].ClaimResources {
		resource.ShareId = nil
	}
	second := pod("second", map[string]*checkpoint.Record{"main": shares})
	second.Containers[0].DynamicResources[0].ClaimResources = second.Containers[0].DynamicResources[0].ClaimResources[1:]
	w.kubelet.set(pod("both", map[string]*checkpoint.Record{"b": two, "a": two}), pod("namesake", map[string]*checkpoint.Record{"main": namesake}),
		unprepared, one, older, second, &podresources.PodResources{Namespace: "ns", Name: "none"})
	w.read()
	require.Len(t, w.list(), 4)
	assert.Equal(t, []string{"both/a", "both/b"}, podsOf(w.list()[0]))
	assert.Equal(t, []string{"both/a", "both/b", "one/main"}, podsOf(w.list()[1]))
	assert.Equal(t, []string{"older/main"}, podsOf(w.list()[2]))
	assert.Equal(t, []string{"older/main", "second/main"}, podsOf(w.list()[3]))
	assert.EqualValues(t, 1, w.kubelet.calls.Load())
	assert.EqualValues(t, 1, w.runtime.calls.Load(), "for containers that were not known")
}

func TestAllocations_KubeletAway_NamesStayAsLongAsTheRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	a, b := record("a", whole("gpu-0")), record("b", whole("gpu-1"))
	w.put(a, b)
	w.kubelet.set(pod("first", map[string]*checkpoint.Record{"main": a}), pod("second", map[string]*checkpoint.Record{"main": b}))
	w.read()
	w.kubelet.stop()
	_ = os.Remove(w.kubeletSocket())
	require.NoError(t, w.records.Delete("b"))
	w.read()
	assert.False(t, w.source(SourcePodResources).OK)
	assert.Contains(t, w.source(SourcePodResources).Error, w.kubeletSocket())
	require.Len(t, w.list(), 1)
	assert.Equal(t, []string{"first/main"}, podsOf(w.list()[0]))
	w.put(b)
	w.read()
	require.Len(t, w.list(), 2)
	assert.Empty(t, podsOf(w.list()[1]), "its pods were those of the record that is gone")

	// A kubelet that has just started knows no pods.
	w.kubelet.set()
	w.serveKubelet()
	w.read()
	assert.True(t, w.source(SourcePodResources).OK)
	assert.Equal(t, []string{"first/main"}, podsOf(w.list()[0]))
	w.kubelet.set(pod("next", map[string]*checkpoint.Record{"main": a}))
	w.read()
	assert.Equal(t, []string{"first/main", "next/main"}, podsOf(w.list()[0]), "for a while")
	w.tracker.uses.since = w.tracker.uses.since.Add(-2 * never.restarted)
	w.read()
	assert.Equal(t, []string{"next/main"}, podsOf(w.list()[0]))
	w.kubelet.set()
	w.read()
	assert.Empty(t, podsOf(w.list()[0]), "a kubelet that has been there for long knows all its pods")
}

// TestAllocations_KubeletListsNoClaims_Reported: if its feature gate is disabled, the kubelet lists pods without claims and returns no
// error.
func TestAllocations_KubeletListsNoClaims_Reported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	a := record("a", whole("gpu-0"))
	w.put(in(checkpoint.Releasing, record("z", whole("gpu-1"))))
	w.kubelet.set(&podresources.PodResources{Namespace: "ns", Name: "pod", Containers: []*podresources.ContainerResources{{Name: "main"}}})
	longAgo := func() { w.tracker.uses.since = time.Now().Add(-2 * never.restarted) }
	source := func() Source {
		w.read()
		return w.source(SourcePodResources)
	}
	source()
	longAgo()
	assert.True(t, source().OK, "no claim is prepared")
	w.put(a)
	assert.True(t, source().OK, "the kubelet may get to know its pod later")
	w.tracker.since["a"] = time.Now().Add(-2 * never.restarted)
	off := source()
	assert.False(t, off.OK)
	assert.Contains(t, off.Error, "1 claims are prepared")
	assert.Contains(t, off.Error, "KubeletPodResourcesDynamicResources")
	assert.True(t, w.tracker.uses.reported)

	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
	assert.True(t, source().OK)
	w.kubelet.set()
	assert.True(t, source().OK, "pods end before their claims")
	w.kubelet.stop()
	w.serveKubelet()
	assert.True(t, source().OK, "it has just started")
	longAgo()
	assert.False(t, source().OK, "its feature gate was turned off")
}

// TestAllocations_IdleContainers_HaveIDs: only if each container of a device is known, another process on it is foreign.
func TestAllocations_IdleContainers_HaveIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	a := record("a", whole("gpu-0"))
	w.put(a)
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
	w.read()
	assert.Empty(t, w.list()[0].Containers[0].ID, "the runtime pulls its image")
	w.runtime.add(id("a"), "pod", "main")
	w.read()
	assert.Equal(t, id("a"), w.list()[0].Containers[0].ID)
	w.read()
	assert.EqualValues(t, 2, w.runtime.calls.Load(), "not any more when all are known")
}

// TestRun_RecordChanges_KubeletAskedAgain: a change of a record announces a container.
func TestRun_RecordChanges_KubeletAskedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	w.run()
	w.eventually("it was asked at the start", func() bool { return w.kubelet.calls.Load() >= 1 })
	a := record("a", whole("gpu-0"))
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
	w.put(in(checkpoint.Intent, record("a", whole("gpu-0"))), a, record("b", whole("gpu-1")), record("c", whole("gpu-2")))
	w.eventually("the container is known", func() bool { return len(w.list()) == 3 && len(w.list()[0].Containers) == 1 })
	assert.EqualValues(t, 1, w.runtime.calls.Load(), "at the start")
}

// TestFollowPods_RecordChanges_KubeletAskedOnce: the claims of a pod, and the states of each, change at the same time. This test runs no
// kubelet, so each attempt to query it is an error of the source.
func TestFollowPods_RecordChanges_KubeletAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tracker := newTracker(Options{KubeletSocket: filepath.Join(t.TempDir(), "none.sock")}, usual)
		tries := func() int {
			synctest.Wait()
			tracker.sources.mu.Lock()
			defer tracker.sources.mu.Unlock()
			return int(tracker.sources.last[SourcePodResources].Errors)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		changed := make(chan struct{})
		go tracker.followPods(ctx, changed)
		assert.Equal(t, 1, tries(), "at the start")
		for round := range 2 {
			for range 5 {
				changed <- struct{}{}
				time.Sleep(usual.listAfter/5 - time.Millisecond)
			}
			assert.Equal(t, 1+round, tries(), "others may follow")
			time.Sleep(5 * time.Millisecond)
			assert.Equal(t, 2+round, tries(), "once for five changes")
		}
		time.Sleep(usual.pods - 2*usual.listAfter - time.Millisecond)
		assert.Equal(t, 3, tries(), "nothing changed")
		time.Sleep(time.Millisecond)
		assert.Equal(t, 4, tries(), "at the interval")
	})
}

// TestRun_Interval_KubeletAndFilesReadAgain: the interval finds changes that no record announces.
func TestRun_Interval_KubeletAndFilesReadAgain(t *testing.T) {
	t.Parallel()
	s := never
	s.pods, s.records = 5*time.Millisecond, 5*time.Millisecond
	w := newWorld(t, s)
	a := record("a", whole("gpu-0"))
	w.put(a)
	w.run()
	w.eventually("the record is read", func() bool { return len(w.list()) == 1 })
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
	w.eventually("the container is known", func() bool { return len(w.list()[0].Containers) == 1 })
	// The directory is replaced by another one in which nothing changes.
	require.NoError(t, os.CopyFS(filepath.Join(w.dir, "other"), os.DirFS(filepath.Join(w.dir, "plugin/claims"))))
	require.NoError(t, os.Remove(filepath.Join(w.dir, "other/a.json")))
	require.NoError(t, os.Rename(filepath.Join(w.dir, "plugin"), filepath.Join(w.dir, "old")))
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, "plugin"), 0o755))
	require.NoError(t, os.Rename(filepath.Join(w.dir, "other"), filepath.Join(w.dir, "plugin/claims")))
	w.eventually("the record is gone", func() bool { return len(w.list()) == 0 })
}
