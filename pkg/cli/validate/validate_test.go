package validate

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/validation"
)

const (
	driver = cluster.DefaultDriver
	uuid   = "GPU-aaaaaaaa-0000-1111-2222-333333333333"
)

// facts are the objects of a node with one GPU.
func facts() nodeFacts {
	s := resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: driver, NodeName: new("n1"), Pool: resourceapi.ResourcePool{Name: "n1"}}}
	s.Spec.Devices = []resourceapi.Device{{Name: "gpu-aaaaaaaa", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type": {StringValue: new("gpu")}, "parentUUID": {StringValue: new(uuid)}, "index": {IntValue: new(int64(0))},
		"driverVersion": {VersionValue: new("580.95.5")},
	}}}
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prism", Name: "plugin-x"}}
	p.Spec.Containers = []corev1.Container{{Image: "prism:1"}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return nodeFacts{slices: []resourceapi.ResourceSlice{s}, plugins: []corev1.Pod{p}}
}

// fixture is a cluster whose scheduler and kubelet act when a claim is created.
type fixture struct {
	*fake.Clientset
	t *testing.T
	// message is the termination message; "" if the container does not exit. unscheduled: the claim is not allocated.
	message     string
	unscheduled bool
	pod         *corev1.Pod
	claim       *resourceapi.ResourceClaim
	kubelet     sync.WaitGroup
}

func newFixture(t *testing.T) *fixture {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.4"
	f := &fixture{Clientset: fake.NewClientset(node, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver}}), t: t}
	f.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod, ok := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		require.True(t, ok)
		pod.UID = "pod-uid"
		f.pod = pod.DeepCopy()
		return false, nil, nil
	})
	f.PrependReactor("create", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		claim, ok := action.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceClaim)
		require.True(t, ok)
		claim.UID = "claim-uid"
		f.claim = claim.DeepCopy()
		f.kubelet.Go(f.start)
		return false, nil, nil
	})
	return f
}

// start allocates the claim and runs the container.
func (f *fixture) start() {
	time.Sleep(time.Second)
	pod, claim := f.pod.DeepCopy(), f.claim.DeepCopy()
	pods, claims := f.CoreV1().Pods("team"), f.ResourceV1().ResourceClaims("team")
	if f.unscheduled {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "cannot allocate all claims"}}
		_, _ = pods.UpdateStatus(context.Background(), pod, metav1.UpdateOptions{})
		return
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: driver, Pool: "n1", Device: "gpu-aaaaaaaa"}},
	}}
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: driver, Data: &runtime.RawExtension{Raw: []byte(`{"uuid":"` + uuid + `"}`)}}}
	_, _ = claims.UpdateStatus(context.Background(), claim, metav1.UpdateOptions{})
	time.Sleep(time.Second)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	_, _ = pods.UpdateStatus(context.Background(), pod.DeepCopy(), metav1.UpdateOptions{})
	if f.message == "" {
		return
	}
	time.Sleep(time.Second)
	// The controller of claims may be faster than the status of the pod.
	claim.Status = resourceapi.ResourceClaimStatus{}
	_, _ = claims.UpdateStatus(context.Background(), claim.DeepCopy(), metav1.UpdateOptions{})
	time.Sleep(time.Second)
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: f.message}}
	_, _ = pods.UpdateStatus(context.Background(), pod, metav1.UpdateOptions{})
}

// validate validates node n1, and checks that nothing is left.
func (f *fixture) validate(ctx context.Context, flags flags, of nodeFacts) ([]string, bool) {
	flags.timeout = time.Minute
	lines, ok := flags.node(ctx, &cluster.Client{Interface: f, Driver: driver, Namespace: "team"}, "n1", of)
	pods, err := f.CoreV1().Pods("team").List(context.Background(), metav1.ListOptions{})
	require.NoError(f.t, err)
	claims, err := f.ResourceV1().ResourceClaims("team").List(context.Background(), metav1.ListOptions{})
	require.NoError(f.t, err)
	assert.Empty(f.t, pods.Items)
	assert.Empty(f.t, claims.Items)
	return lines, ok
}

func message(t *testing.T, result validation.Result) string {
	t.Helper()
	text, err := json.Marshal(result)
	require.NoError(t, err)
	return string(text)
}

var before = []string{"driver: ok: version 580.95.5, GPUs: 1", "container runtime: ok: containerd://2.1.4", "plugin: ok: pod prism/plugin-x"}

func TestNode_UsableGPU_AllStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.message = message(t, validation.Result{Checks: []validation.Check{{Name: "cuInit"}, {Name: "memory"}}, UUIDs: []string{validation.Bare(uuid)}})
		lines, ok := f.validate(t.Context(), flags{gpu: "0"}, facts())
		assert.True(t, ok)
		assert.Equal(t, append(before[:3:3], "claim: ok: gpu-aaaaaaaa", "cuda: ok: cuInit, memory"), lines)

		assert.Equal(t, "prism:1", f.pod.Spec.Containers[0].Image)
		assert.Empty(t, f.pod.Spec.NodeName, "the scheduler must allocate the claim")
		assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: f.pod.Name, UID: "pod-uid"}}, f.claim.OwnerReferences)
		assert.Equal(t, f.claim.Name, *f.pod.Spec.ResourceClaims[0].ResourceClaimName)
		assert.Equal(t, []resourceapi.DeviceSubRequest{{
			Name: "gpu", DeviceClassName: driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: `device.attributes["` + driver + `"].parentUUID == "` + uuid + `"`,
			}}},
			Tolerations: []resourceapi.DeviceToleration{{Key: driver + "/maintenance", Operator: resourceapi.DeviceTolerationOpExists}},
		}}, f.claim.Spec.Devices.Requests[0].FirstAvailable)
	})
}

// TestNode_PodFails_SaysWhatToChange also checks that the objects are deleted.
func TestNode_PodFails_SaysWhatToChange(t *testing.T) {
	for name, c := range map[string]struct {
		message     string
		unscheduled bool
		want        string
	}{
		"unscheduled": {"", true, "claim: no device of the node was allocated, free one or remove its taint: cannot allocate all claims; " +
			"kubectl prism gpu list n1 shows claims and taints"},
		"hangs": {"", false, "cuda: prism-validate has not exited: the GPU may hang; raise --timeout, or check the GPU with nvidia-smi on the node"},
		"check": {message(t, validation.Result{Checks: []validation.Check{{Name: "cuInit", Failed: "cuInit returned 803: restart the node"}}}), false,
			"cuda: cuInit returned 803: restart the node"},
		"image": {"exec: not found", false, "cuda: prism-validate exited with code 0, : exec: not found: set --image to an image of Prism"},
		"other GPU": {message(t, validation.Result{UUIDs: []string{"b"}}), false, "cuda: CUDA does not see " + uuid + " of the claim; CUDA sees b, not of the " +
			"claim: check that no other component adds GPUs to containers, such as NVIDIA's device plugin"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.message, f.unscheduled = c.message, c.unscheduled
				lines, ok := f.validate(t.Context(), flags{}, facts())
				assert.False(t, ok)
				assert.Equal(t, c.want, lines[len(lines)-1])
				assert.Empty(t, f.claim.Spec.Devices.Requests[0].FirstAvailable[0].Tolerations)
			})
		})
	}
}

func TestNode_Interrupted_ObjectsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, stop)
		lines, ok := f.validate(ctx, flags{}, facts())
		assert.False(t, ok)
		assert.Equal(t, "claim: interrupted", lines[len(lines)-1])
		f.kubelet.Wait()
	})
}

func TestNode_StageFails_NoPodCreated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lines, ok := f.validate(t.Context(), flags{}, nodeFacts{})
	assert.False(t, ok)
	assert.Equal(t, []string{
		"driver: the node has no ResourceSlices of driver gpu.prism.dev: its kubelet plugin must run", before[1],
		"plugin: no pod of the kubelet plugin of driver gpu.prism.dev is on the node: check nodeSelector, affinity and tolerations in kubeletPlugin of the chart",
	}, lines)
	assert.Nil(t, f.pod)
	lines, _ = f.validate(t.Context(), flags{gpu: "7"}, facts())
	assert.Equal(t, `claim: GPU "7" of node n1: unknown; GPUs of the node: gpu-aaaaaaaa (index 0, `+uuid+`)`, lines[3])
}

// event returns an Event of a time.
func event(seconds int64, message string) *corev1.Event {
	return &corev1.Event{LastTimestamp: metav1.Unix(seconds, 0), Message: message}
}

func TestStages_Problems_FromTheLastEvent(t *testing.T) {
	t.Parallel()
	down := notes{events.NVIDIADriverUnavailable: event(2, "driver not loaded"), events.NVIDIADriverAvailable: event(1, "")}
	_, err := driverStage(nil, true, driver, down)
	assert.EqualError(t, err, "driver not loaded")
	_, err = driverStage(nil, true, driver, notes{events.NVIDIADriverUnavailable: event(1, "x"), events.NVIDIADriverAvailable: event(2, "")})
	assert.EqualError(t, err, "the kubelet plugin found no GPU: install the NVIDIA driver on the node, or set nvidiaDriverRoot of the chart")

	for runtime, want := range map[string]string{
		"containerd://1.6.36": "containerd 1.6.36 does not support CDI well enough: upgrade it to 1.7 or later", "cri-o://1.27.1": "cri-o 1.27.1 does not support " +
			"CDI well enough: upgrade it to 1.28 or later", "containerd://1.7.2": "", "cri-o://1.36.0": "", "other://1": "",
	} {
		_, err := runtimeStage(runtime, notes{})
		if want == "" {
			assert.NoError(t, err, runtime)
			continue
		}
		assert.EqualError(t, err, want)
	}
	_, err = runtimeStage("containerd://2.0.0", notes{events.CDIUnavailable: event(1, "enable_cdi is false")})
	assert.EqualError(t, err, "enable_cdi is false")

	p := facts().plugins[0]
	p.Status.Conditions = nil
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
	_, err = pluginStage([]corev1.Pod{p}, driver)
	assert.EqualError(t, err, "pod prism/plugin-x is not ready: ImagePullBackOff; kubectl logs -n prism plugin-x shows the reason")
	_, err = pluginStage([]corev1.Pod{p, facts().plugins[0]}, driver)
	assert.NoError(t, err, "during an update a node has two")
}

// TestNotes_EarlierPlugin_Ignored: the problem that an earlier plugin has reported may have ended while no plugin ran.
func TestNotes_EarlierPlugin_Ignored(t *testing.T) {
	t.Parallel()
	old, now := *event(5, "CDI is off"), *event(12, "not loaded")
	old.Reason, now.Reason = events.CDIUnavailable, events.NVIDIADriverUnavailable
	pods := []corev1.Pod{{}, facts().plugins[0]}
	assert.Len(t, lastOf([]corev1.Event{old, now}, began(pods)), 2, "no plugin runs")
	for i, start := range []int64{10, 7} {
		pods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
			StartedAt: metav1.Unix(start, 0),
		}}}}
	}
	last := lastOf([]corev1.Event{old, now}, began(pods))
	assert.Empty(t, last.problem(events.CDIUnavailable, events.CDIAvailable))
	assert.Equal(t, "not loaded", last.problem(events.NVIDIADriverUnavailable, events.NVIDIADriverAvailable))
}
