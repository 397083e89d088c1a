package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sharedGPUs are the indices of the GPUs that are also advertised as shareReplicas time-sliced shares and as many MPS shares, as in
// values.yaml.
var sharedGPUs = []int{3, 4}

const shareReplicas = 3

// timeSlicingInParallel is inParallel for a test that leases the GPUs that are advertised as time-sliced shares.
func timeSlicingInParallel(t *testing.T) *namespace {
	t.Helper()
	needs(t, consumableCapacity)
	c := open(t)
	t.Parallel()
	c.gpus.leaseShared(t, len(sharedGPUs))
	eventually(t, startLimit, func() error {
		n, err := c.advertised("timeslice")
		if err == nil && n != len(sharedGPUs) {
			err = fmt.Errorf("%d GPUs are advertised as shares, not %d: is the chart installed with test/e2e/values.yaml?", n, len(sharedGPUs))
		}
		return err
	})
	return newNamespace(t, c)
}

// createShare creates a pod that requests a share of one GPU.
func (ns *namespace) createShare(pod string, index int) {
	ns.t.Helper()
	ns.create(workload{name: pod, ref: "share", request: request{
		class: "timeslice.gpu.prism.dev", selectors: []string{fmt.Sprintf(`device.attributes["gpu.prism.dev"].index == %d`, index)},
	}})
}

// share waits for the pod. It returns its share, and checks that the pod sees exactly the GPU of the share.
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

// TestTimeSliceShared: as many pods as there are replicas share one GPU at once, and the next pod waits for one of them to end.
func TestTimeSliceShared(t *testing.T) {
	ns := timeSlicingInParallel(t)
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
		ns.createShare(pod, other) // one pod after the other, as above
		ns.share(pod, "share")
	}
	ns.createShare("waits", other)
	ns.waits("waits")
	ns.delete("pod", "other-1")
	ns.share("waits", "share")
	ns.sees("other-0", "main", ns.grantedTo(ns.pod("other-0"), "share")...)
	require.NoError(t, ns.silence())
}

// TestTimeSliceSpread: a request for two shares gets two GPUs.
func TestTimeSliceSpread(t *testing.T) {
	ns := timeSlicingInParallel(t)
	ns.apply("timeslice-spread/pod.yaml")
	grants := ns.grantedTo(ns.ready("timeslice-spread"), "gpus")
	require.Len(t, grants, 2)
	assert.NotEqual(t, grants[0].UUID, grants[1].UUID)
	ns.sees("timeslice-spread", "main", grants...)
	require.NoError(t, ns.silence())
}

// TestTimeSliceAndWhole: a request for the whole GPU waits until the last of its shares is released, and a request for a share waits for
// the whole GPU.
func TestTimeSliceAndWhole(t *testing.T) {
	ns := timeSlicingInParallel(t)
	ns.apply("timeslice-and-whole/share.yaml")
	first := ns.share("share-of-gpu-3", "gpu")
	ns.createShare("second", sharedGPUs[0])
	require.Equal(t, first.UUID, ns.share("second", "share").UUID)

	ns.apply("timeslice-and-whole/whole.yaml")
	ns.waits("all-of-gpu-3")
	ns.deleteWithClaim("share-of-gpu-3", "gpu")
	ns.stillWaits("all-of-gpu-3", sharedGPUs[0])
	ns.delete("pod", "second")
	whole := ns.grantedTo(ns.ready("all-of-gpu-3"), "gpu")
	require.Equal(t, first.UUID, whole[0].UUID)
	ns.sees("all-of-gpu-3", "main", whole...)

	ns.createShare("again", sharedGPUs[0])
	ns.waits("again")
	ns.delete("pod", "all-of-gpu-3")
	ns.share("again", "share")
	require.NoError(t, ns.silence())
}

const resourceClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: e2e-share}
spec:
  selectors: [{cel: {expression: 'device.driver == "gpu.prism.dev" && device.attributes["gpu.prism.dev"].type == "timeslice"'}}]
  extendedResourceName: ` + shareResource + "\n"

const shareResource = "e2e.prism.dev/share"

// TestTimeSliceResource: a pod without a claim gets a share if a class names a resource. A request for two is refused with the text of the
// device plugin, as two shares are not more of a GPU.
func TestTimeSliceResource(t *testing.T) {
	needs(t, extendedResources)
	ns := timeSlicingInParallel(t)
	t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "deviceclass", "e2e-share")...) })
	require.NoError(t, ns.createText(resourceClass))
	ns.create(limited("shares-1", shareResource, 1))
	pod := ns.ready("shares-1")
	require.NotNil(t, pod.Status.ExtendedResourceClaimStatus)
	grants := ns.granted(pod.Status.ExtendedResourceClaimStatus.ResourceClaimName)
	require.Len(t, grants, 1)
	assert.Equal(t, shareReplicas, grants[0].Replicas)
	ns.sees("shares-1", "main", grants...)

	ns.create(limited("shares-2", shareResource, 2))
	message := ns.event("shares-2", prepareFailed, startLimit)
	t.Log(message)
	assert.Contains(t, message, "request for 'nvidia.com/gpu: 2' too large: maximum request size for shared resources is 1")
	ns.delete("pod", "shares-2")
}
