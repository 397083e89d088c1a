package allocation

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// withLabels is a node whose tracker reads these pod labels, with a prepared claim of a container of the pod "pod".
func withLabels(t *testing.T, s schedule, keys ...string) *world {
	t.Helper()
	w := newWorld(t, s)
	options := w.options()
	options.PodLabels = keys
	w.tracker = newTracker(options, s)
	a := record("a", whole("gpu-0"))
	w.put(a)
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
	return w
}

func (w *world) podLabels() map[string][]string { return w.tracker.Allocations().PodLabels }

func TestPodLabels_ChosenKeys_OfPodsWithClaimsAlone(t *testing.T) {
	t.Parallel()
	w := withLabels(t, withoutLimit(), "team", "app.kubernetes.io/name", "absent")
	w.runtime.add(id("1"), "pod", "main")
	w.runtime.add(id("2"), "other", "main")
	w.runtime.sandbox("uid-of-pod", "pod", map[string]string{"team": "vision", "app.kubernetes.io/name": "train", "Team": "x", "more": "y"})
	w.runtime.sandbox("uid-of-other", "other", map[string]string{"team": "speech"})
	w.read()
	assert.Equal(t, map[string][]string{"uid-of-pod": {"vision", "train", ""}}, w.podLabels())
	assert.True(t, w.source(SourcePodLabels).OK)
	assert.Equal(t, map[string][]string{"uid-of-pod": {"vision", "train", ""}}, w.tracker.labels.known(), "nothing is kept of other pods")

	// The labels of a pod may change, the labels of its sandbox do not, so one list is enough.
	lists := w.runtime.sandboxCalls.Load()
	w.runtime.sandboxes[0].Labels["team"] = "changed"
	for range 3 {
		w.read()
	}
	assert.Equal(t, lists, w.runtime.sandboxCalls.Load())
	assert.Equal(t, "vision", w.podLabels()["uid-of-pod"][0])
	require.NoError(t, w.records.Delete("a"))
	w.read()
	assert.Empty(t, w.podLabels())
}

// TestPodLabels_NoneWanted_RuntimeNotAsked: without selected labels there is neither another call nor a source that could fail.
func TestPodLabels_NoneWanted_RuntimeNotAsked(t *testing.T) {
	t.Parallel()
	w := withLabels(t, withoutLimit())
	w.runtime.add(id("1"), "pod", "main")
	w.runtime.sandbox("uid-of-pod", "pod", map[string]string{"team": "vision"})
	w.read()
	assert.Nil(t, w.podLabels())
	assert.Zero(t, w.runtime.sandboxCalls.Load())
	for _, source := range w.tracker.Sources() {
		assert.NotEqual(t, SourcePodLabels, source.Name)
	}
}

// TestPodLabels_NameOfAnotherPod_NotItsLabels: labels come from the container's own pod. Earlier and later pods, and pods in other
// namespaces, may use the same name.
func TestPodLabels_NameOfAnotherPod_NotItsLabels(t *testing.T) {
	t.Parallel()
	w := withLabels(t, withoutLimit(), "team")
	w.runtime.sandbox("before", "pod", map[string]string{"team": "before"})
	w.runtime.sandbox("elsewhere", "pod", map[string]string{"team": "elsewhere"})
	w.runtime.sandboxes[1].Metadata.Namespace = "hostile"
	w.read()
	assert.Empty(t, w.podLabels(), "the container is not known, so its pod is not either")
	w.runtime.add(id("1"), "pod", "main")
	w.read()
	assert.Empty(t, w.podLabels(), "the sandbox of its pod is not listed")
	w.runtime.sandbox("uid-of-pod", "pod", map[string]string{"team": "its"})
	w.read()
	assert.Equal(t, map[string][]string{"uid-of-pod": {"its"}}, w.podLabels())
	assert.NotContains(t, w.tracker.labels.known(), "elsewhere")
}

// TestPodLabels_ContainerDoesNotRun_AskedLessAndLess: a tenant's pod whose image cannot be pulled does not cause a list of all sandboxes in
// every round.
func TestPodLabels_ContainerDoesNotRun_AskedLessAndLess(t *testing.T) {
	t.Parallel()
	w := withLabels(t, withoutLimit(), "team")
	w.runtime.sandbox("uid-of-pod", "pod", map[string]string{"team": "vision"})
	for range 5 {
		w.read()
	}
	assert.EqualValues(t, 1, w.runtime.sandboxCalls.Load(), "the sandbox is there, and no container is")
	w.runtime.add(id("1"), "pod", "main")
	w.read()
	assert.Equal(t, map[string][]string{"uid-of-pod": {"vision"}}, w.podLabels())
	assert.EqualValues(t, 1, w.runtime.sandboxCalls.Load())
}

// TestPodLabels_SandboxMissing_BackoffGrows: lists without a new pod do not continue at the first interval.
func TestPodLabels_SandboxMissing_BackoffGrows(t *testing.T) {
	t.Parallel()
	w := withLabels(t, never, "team")
	p := w.tracker.labels
	p.due.First, p.due.Max = time.Hour, 8*time.Hour
	w.runtime.sandbox("uid-of-other", "other", nil)
	names := []name{{"ns", "pod", "main"}}
	start := time.Now()
	var waits []time.Duration
	for range 4 {
		p.read(t.Context(), names, nil)
		waits = append(waits, p.due.Next().Sub(start).Round(time.Hour))
		p.due.Postpone(start.Add(-100 * time.Hour))
	}
	assert.Equal(t, []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour}, waits)
}

// TestPodLabels_SeveralSandboxes_LastOne: a dead sandbox is recreated, and both are listed.
func TestPodLabels_SeveralSandboxes_LastOne(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"first", "second"}, {"second", "first"}} {
		w := withLabels(t, withoutLimit(), "team")
		w.runtime.add(id("1"), "pod", "main")
		for _, value := range order {
			w.runtime.sandbox("uid-of-pod", "pod", map[string]string{"team": value})
			w.runtime.sandboxes[len(w.runtime.sandboxes)-1].CreatedAt = int64(strings.Index("first second", value))
		}
		w.read()
		assert.Equal(t, "second", w.podLabels()["uid-of-pod"][0])
	}
}

// TestPodLabels_LongValues_Absent: Kubernetes refuses long values, so a runtime that returns one is wrong; a part of it would be another
// value. Other labels and annotations may be of any size and number.
func TestPodLabels_LongValues_Absent(t *testing.T) {
	t.Parallel()
	w := withLabels(t, withoutLimit(), "longest", "longer", "long", "team")
	w.runtime.add(id("1"), "pod", "main")
	labels := map[string]string{
		"longest": strings.Repeat("x", 1<<20), "longer": strings.Repeat("x", maxLabelValue+1), "long": strings.Repeat("x", maxLabelValue), "team": "vision",
	}
	for i := range 1000 {
		labels[fmt.Sprint("other-", i)] = strings.Repeat("v", 63)
	}
	w.runtime.sandbox("uid-of-pod", "pod", labels)
	for i := range 6 {
		w.runtime.sandbox(fmt.Sprint("uid-", i), "other", nil)
		w.runtime.sandboxes[i+1].Annotations = map[string]string{"note": strings.Repeat("n", 1<<20)}
	}
	w.read()
	require.Empty(t, w.source(SourcePodLabels).Error, "more than a message of gRPC may be by default")
	assert.Equal(t, []string{"", "", strings.Repeat("x", maxLabelValue), "vision"}, w.podLabels()["uid-of-pod"])
}

// TestPodLabels_RuntimeHangs_NamesKnownMeanwhile: a call that the runtime does not answer delays nothing else, and earlier information
// about pods stays.
func TestPodLabels_RuntimeHangs_NamesKnownMeanwhile(t *testing.T) {
	t.Parallel()
	s := withoutLimit()
	s.criQuiet = time.Second
	w := withLabels(t, s, "team")
	w.runtime.add(id("1"), "pod", "main")
	w.runtime.sandbox("uid-of-pod", "pod", map[string]string{"team": "vision"})
	w.eventually("its labels are known", func() bool {
		w.read()
		return len(w.podLabels()["uid-of-pod"]) > 0
	})
	require.Equal(t, "vision", w.podLabels()["uid-of-pod"][0])

	w.runtime.hang(true)
	b := record("b", whole("gpu-1"))
	w.put(b)
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": record("a", whole("gpu-0"))}), pod("new", map[string]*checkpoint.Record{"main": b}))
	w.runtime.add(id("2"), "new", "main")
	w.runtime.sandbox("uid-of-new", "new", map[string]string{"team": "speech"})
	asked := w.runtime.sandboxCalls.Load()
	var reading sync.WaitGroup
	reading.Go(w.read)
	w.eventually("the runtime is asked", func() bool { return w.runtime.sandboxCalls.Load() > asked })
	want := []metrics.Container{{Namespace: "ns", Pod: "new", Name: "main", PodUID: "uid-of-new", ID: id("2")}}
	assert.Equal(t, want, w.list()[1].Containers, "while it does not answer")
	assert.Equal(t, map[string][]string{"uid-of-pod": {"vision"}}, w.podLabels())
	reading.Wait()
	assert.Regexp(t, "^listing pod labels of the container runtime at .*: no data received for 1s", w.source(SourcePodLabels).Error)
	assert.Equal(t, map[string][]string{"uid-of-pod": {"vision"}}, w.podLabels())
	assert.True(t, w.source(SourceCRI).OK, "it lists its containers")

	w.runtime.hang(false)
	w.eventually("it lists pods again", func() bool {
		w.read()
		return w.source(SourcePodLabels).OK
	})
	assert.Equal(t, map[string][]string{"uid-of-pod": {"vision"}, "uid-of-new": {"speech"}}, w.podLabels())
}

// TestPodLabels_RuntimeFails_AskedLessOften: records may change at any rate.
func TestPodLabels_RuntimeFails_AskedLessOften(t *testing.T) {
	t.Parallel()
	w := withLabels(t, never, "team")
	w.runtime.stop()
	for range 3 {
		w.read()
	}
	assert.EqualValues(t, 1, w.source(SourcePodLabels).Errors)
	assert.Contains(t, w.source(SourcePodLabels).Error, "no container runtime serves at /run/containerd/containerd.sock")
}

// TestPodLabels_TrackerRuns_LabelsKnown: all parts together, as in the exporter.
func TestPodLabels_TrackerRuns_LabelsKnown(t *testing.T) {
	t.Parallel()
	s := withoutLimit()
	s.pods = s.listAfter
	w := withLabels(t, s, "team")
	w.run()
	w.eventually("nothing is known of the pod", func() bool { return w.source(SourcePodLabels).OK && len(w.list()) == 1 && w.podLabels() == nil })
	w.runtime.add(id("1"), "pod", "main")
	w.runtime.sandbox("uid-of-pod", "pod", map[string]string{"team": "vision"})
	w.eventually("its label is known", func() bool {
		return len(w.podLabels()["uid-of-pod"]) == 1 && w.podLabels()["uid-of-pod"][0] == "vision"
	})
}

// TestAllocations_PodReplacedByOneOfItsName_NotTheFormerOne: two pods share a claim, so that its record stays while one of them is
// recreated.
func TestAllocations_PodReplacedByOneOfItsName_NotTheFormerOne(t *testing.T) {
	t.Parallel()
	w := withLabels(t, withoutLimit(), "team")
	shared := map[string]*checkpoint.Record{"main": record("a", whole("gpu-0"))}
	w.runtime.add(id("1"), "pod", "main")
	w.runtime.add(id("2"), "other", "main")
	w.runtime.sandbox("uid-of-pod", "pod", map[string]string{"team": "former"})
	w.tracker.schedule.restarted = 0
	w.kubelet.set(pod("pod", shared), pod("other", shared))
	w.read()
	require.Equal(t, "former", w.podLabels()["uid-of-pod"][0])
	w.runtime.exited(id("1"))
	w.kubelet.set(pod("other", shared))
	w.read()
	w.kubelet.set(pod("pod", shared), pod("other", shared))
	w.read()
	assert.Equal(t, []metrics.Container{
		{Namespace: "ns", Pod: "other", Name: "main", PodUID: "uid-of-other", ID: id("2")}, {Namespace: "ns", Pod: "pod", Name: "main"},
	}, w.list()[0].Containers)
	assert.Empty(t, w.podLabels())
}

// sandbox adds the sandbox of a pod in namespace "ns".
func (s *criServer) sandbox(uid, pod string, labels map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes = append(s.sandboxes, &cri.PodSandbox{
		Id: fmt.Sprint("sandbox-", len(s.sandboxes)), CreatedAt: int64(len(s.sandboxes)), Labels: labels,
		Metadata: &cri.PodSandboxMetadata{Name: pod, Uid: uid, Namespace: "ns"},
	})
}

// exited makes a container exit.
func (s *criServer) exited(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if c.Id == id {
			c.State = cri.ContainerState_CONTAINER_EXITED
		}
	}
}

// hang makes the runtime answer no call for pods, or answer again.
func (s *criServer) hang(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = yes
}

func (s *criServer) ListPodSandbox(ctx context.Context, _ *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	s.sandboxCalls.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangs {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
	}
	return &cri.ListPodSandboxResponse{Items: s.sandboxes}, nil
}
