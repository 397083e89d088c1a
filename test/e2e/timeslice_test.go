package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// sharedGPUs are the indices of the GPUs that are offered to shareReplicas claims each too, as values.yaml says.
var sharedGPUs = []int{3, 4}

const shareReplicas = 3

// shared begins a test that runs while others do and has the GPUs that are offered in turns to itself.
func shared(t *testing.T) *namespace {
	t.Helper()
	needs(t, consumableCapacity)
	c := open(t)
	t.Parallel()
	c.gpus.takeSliced(t)
	eventually(t, startLimit, func() error {
		n, err := c.offered("timeslice")
		if err == nil && n != len(sharedGPUs) {
			err = fmt.Errorf("%d GPUs are offered in turns, not %d: is the chart installed with test/e2e/values.yaml?", n, len(sharedGPUs))
		}
		return err
	})
	return newNamespace(t, c)
}

const sharePod = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s}
spec: {spec: {devices: {requests: [{name: share, exactly: {deviceClassName: timeslice.gpu.prism.dev, selectors: [
  {cel: {expression: 'device.attributes["gpu.prism.dev"].index == %[2]d'}}]}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/prism-test:1
    imagePullPolicy: Never
    command: [sleep, "3600"]
    resources: {claims: [{name: share}]}
  resourceClaims: [{name: share, resourceClaimTemplateName: %[1]s}]
`

// wantShare makes a pod that wants a share of one GPU.
func (ns *namespace) wantShare(pod string, index int) {
	ns.t.Helper()
	require.NoError(ns.t, ns.create(fmt.Sprintf(sharePod, pod, index)))
}

// share waits for the pod and returns the share that it got, of whose GPU it sees all and nothing else.
func (ns *namespace) share(pod, ref string) grant {
	ns.t.Helper()
	grants := ns.grantedTo(ns.ready(pod), ref)
	require.Len(ns.t, grants, 1)
	assert.Equal(ns.t, "timeslice", grants[0].Type)
	assert.Equal(ns.t, shareReplicas, grants[0].Replicas)
	assert.Equal(ns.t, "gpu-shared", grants[0].ShareName)
	ns.sees(pod, "main", grants...)
	return grants[0]
}

// TestTimeSliceShared: as many pods as there are replicas have one GPU at once, and the next one waits for one of them to end.
func TestTimeSliceShared(t *testing.T) {
	ns := shared(t)
	ns.applyPodByPod("timeslice-shared/job.yaml", shareReplicas)
	running, _ := ns.podsOf("timeslice-shared")
	require.Len(t, running, shareReplicas)
	has := map[int]int{}
	for _, name := range running {
		has[ns.share(name, "gpu").Index]++
	}
	require.Len(t, has, 1, "one GPU is full before the other one is used")

	other := sharedGPUs[0]
	if has[other] > 0 {
		other = sharedGPUs[1]
	}
	for i := range shareReplicas {
		pod := fmt.Sprintf("other-%d", i)
		ns.wantShare(pod, other) // pod by pod, as above
		ns.share(pod, "share")
	}
	ns.wantShare("waits", other)
	ns.waits("waits")
	ns.delete("pod", "other-1")
	ns.share("waits", "share")
	ns.sees("other-0", "main", ns.grantedTo(ns.pod("other-0"), "share")...)
	require.NoError(t, ns.silence())
}

// TestTimeSliceSpread: a request for two shares has two GPUs.
func TestTimeSliceSpread(t *testing.T) {
	ns := shared(t)
	ns.apply("timeslice-spread/pod.yaml")
	grants := ns.grantedTo(ns.ready("timeslice-spread"), "gpus")
	require.Len(t, grants, 2)
	assert.NotEqual(t, grants[0].UUID, grants[1].UUID)
	ns.sees("timeslice-spread", "main", grants...)
	require.NoError(t, ns.silence())
}

// TestTimeSliceAndWhole: who wants the whole GPU waits for the last of its shares to end, and who wants a share for the whole GPU.
func TestTimeSliceAndWhole(t *testing.T) {
	ns := shared(t)
	ns.apply("timeslice-and-whole/share.yaml")
	first := ns.share("share-of-gpu-3", "gpu")
	ns.wantShare("second", sharedGPUs[0])
	require.Equal(t, first.UUID, ns.share("second", "share").UUID)

	ns.apply("timeslice-and-whole/whole.yaml")
	ns.waits("all-of-gpu-3")
	ns.delete("pod", "share-of-gpu-3")
	always(t, 3*time.Second, func() error {
		var pod corev1.Pod
		if err := ns.read(&pod, "pod", "all-of-gpu-3"); err != nil || pod.Spec.NodeName == "" {
			return err
		}
		return fmt.Errorf("the whole GPU was given while one of its shares is in use")
	})
	ns.delete("pod", "second")
	whole := ns.grantedTo(ns.ready("all-of-gpu-3"), "gpu")
	require.Equal(t, first.UUID, whole[0].UUID)
	ns.sees("all-of-gpu-3", "main", whole...)

	ns.wantShare("again", sharedGPUs[0])
	ns.waits("again")
	ns.delete("pod", "all-of-gpu-3")
	ns.share("again", "share")
	require.NoError(t, ns.silence())
}

const resourceClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: e2e-turn}
spec:
  selectors: [{cel: {expression: 'device.driver == "gpu.prism.dev" && device.attributes["gpu.prism.dev"].type == "timeslice"'}}]
  extendedResourceName: e2e.prism.dev/turn
`

const resourcePod = `
apiVersion: v1
kind: Pod
metadata: {name: turns-%[1]d}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/prism-test:1
    imagePullPolicy: Never
    command: [sleep, "3600"]
    resources: {limits: {e2e.prism.dev/turn: %[1]d}}
`

// TestTimeSliceResource: a pod without a claim gets a share where a class names a resource. A request for two is refused in the words
// of the device plugin, as two shares are no more of a GPU.
func TestTimeSliceResource(t *testing.T) {
	needs(t, extendedResources)
	ns := shared(t)
	t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "deviceclass", "e2e-turn")...) })
	require.NoError(t, ns.create(resourceClass))
	require.NoError(t, ns.create(fmt.Sprintf(resourcePod, 1)))
	pod := ns.ready("turns-1")
	require.NotNil(t, pod.Status.ExtendedResourceClaimStatus)
	grants := ns.granted(pod.Status.ExtendedResourceClaimStatus.ResourceClaimName)
	require.Len(t, grants, 1)
	assert.Equal(t, shareReplicas, grants[0].Replicas)
	ns.sees("turns-1", "main", grants...)

	require.NoError(t, ns.create(fmt.Sprintf(resourcePod, 2)))
	message := ns.event("turns-2", prepareFailed, startLimit)
	t.Log(message)
	assert.Contains(t, message, "request for 'nvidia.com/gpu: 2' too large: maximum request size for shared resources is 1")
	ns.delete("pod", "turns-2")
}
