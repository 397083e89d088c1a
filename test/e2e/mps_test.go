package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// mpsReplicas is the number of MPS shares on each GPU in sharedGPUs, as in values.yaml. equalPartMiB is the memory of a request without a
// value: the memory of an H100, less 512 MiB, in equal parts.
const (
	mpsReplicas  = 3
	equalPartMiB = (81559 - 512) / mpsReplicas
)

// mpsInParallel is inParallel for a test that leases the GPUs that are advertised as MPS shares, and may disturb the MPS service.
func mpsInParallel(t *testing.T) *namespace {
	t.Helper()
	ns, _ := sharingInParallel(t, len(sharedGPUs))
	return ns
}

// mpsOnOneGPU is inParallel for a test that leases one of the GPUs that are advertised as MPS shares, while another test may lease the
// other one.
func mpsOnOneGPU(t *testing.T) (ns *namespace, index int) {
	t.Helper()
	return sharingInParallel(t, 1)
}

func sharingInParallel(t *testing.T, n int) (ns *namespace, index int) {
	t.Helper()
	needs(t, consumableCapacity)
	c := open(t)
	t.Parallel()
	index = c.gpus.leaseShared(t, n)
	c.advertisesMPS(t)
	return newNamespace(t, c), index
}

// mpsExclusive is exclusive for a test of MPS shares.
func mpsExclusive(t *testing.T) *namespace {
	t.Helper()
	needs(t, consumableCapacity)
	open(t).advertisesMPS(t)
	return exclusive(t)
}

// advertisesMPS waits until the shares of all GPUs with MPS shares can be allocated.
func (c *cluster) advertisesMPS(t *testing.T) {
	t.Helper()
	c.mpsService(t)
	eventually(t, startLimit, func() error {
		n, err := c.advertised("mps")
		if err == nil && n != len(sharedGPUs) {
			err = fmt.Errorf("%d GPUs are advertised as MPS shares, not %d: is the chart installed with test/e2e/values.yaml?", n, len(sharedGPUs))
		}
		return err
	})
	eventually(t, startLimit, func() error { return c.mpsTainted(false) })
}

// mpsPod returns a pod with an MPS share of one GPU with this memory; if empty, with the memory in the configuration.
func mpsPod(name string, index int, memory string) workload {
	w := workload{name: name, ref: "share", request: request{
		class: "mps.gpu.prism.dev", selectors: []string{fmt.Sprintf(`device.attributes["gpu.prism.dev"].index == %d`, index)},
	}}
	if memory != "" {
		w.capacity = map[resourceapi.QualifiedName]string{"memory": memory}
	}
	return w
}

// mpsShare waits for the pod and returns its share, whose limit is in effect in the container.
func (ns *namespace) mpsShare(pod, ref string, limitMiB int) grant {
	ns.t.Helper()
	grants := ns.grantedTo(ns.ready(pod), ref)
	require.Len(ns.t, grants, 1)
	assert.Equal(ns.t, "mps", grants[0].Type)
	assert.Equal(ns.t, mpsReplicas, grants[0].Replicas)
	assert.Equal(ns.t, "gpu-mps", grants[0].ShareName)
	assert.Equal(ns.t, fmt.Sprintf("%dMi", limitMiB), grants[0].MPS.Memory)
	assert.Equal(ns.t, "cooperative", grants[0].MemoryEnforcement)
	ns.sees(pod, "main", grants...)
	ns.limitedTo(pod, "main", limitMiB)
	return grants[0]
}

// TestMPSBySize: two pods with shares of different sizes use one GPU at once, each within its own limit, and as different users. When the
// last share ends, the daemon stops, and the GPU is as before.
func TestMPSBySize(t *testing.T) {
	ns := mpsInParallel(t)
	ns.apply("mps-by-size/small.yaml")
	small := ns.mpsShare("small-share", "gpu", 10*1024)
	assert.Equal(t, 25, small.MPS.ActiveThreadPercentage)
	ns.apply("mps-by-size/large.yaml")
	large := ns.mpsShare("large-share", "gpu", 30*1024)
	require.Equal(t, small.UUID, large.UUID)
	first, second := ns.holdsMemory("small-share", "main", 5000), ns.holdsMemory("large-share", "main", 20000)
	assert.Equal(t, []string{"allocated", "allocated"}, []string{first.more(), second.more()})
	assert.Contains(t, ns.allocates("small-share", "main", 0), "multiprocessors 32,", "a quarter of 132, in pairs")
	assert.Contains(t, ns.allocates("large-share", "main", 0), "multiprocessors 132,")
	require.NoError(t, ns.computeMode(small.UUID, modeExclusiveProcess))
	daemon := ns.controlDaemon(small.UUID)
	assert.True(t, daemon.MultiUser)
	require.Len(t, daemon.Servers, 1)

	third := mpsPod("another-user", small.Index, "1Gi")
	third.user = 1000
	ns.create(third)
	ns.mpsShare("another-user", "share", 1024)
	ns.create(mpsPod("fourth", small.Index, "1Gi"))
	ns.waits("fourth")
	ns.delete("pod", "another-user", "fourth")
	ns.create(mpsPod("too-large", small.Index, "40Gi"))
	ns.waits("too-large")
	ns.delete("pod", "too-large")

	ns.delete("pod", "small-share")
	assert.Equal(t, "allocated", second.more())
	ns.stays(daemon)
	ns.delete("pod", "large-share")
	ns.released(small.UUID)
	require.NoError(t, ns.silence())
}

// TestMPSTwoNamespaces: pods of two namespaces share one GPU, with the memory of the configuration.
func TestMPSTwoNamespaces(t *testing.T) {
	ns := mpsInParallel(t)
	other := newNamespace(t, ns.cluster)
	ns.apply("mps-two-namespaces/pod.yaml")
	first := ns.grantedTo(ns.ready("mps-share"), "gpu")[0]
	other.apply("mps-two-namespaces/pod.yaml")
	second := other.grantedTo(other.ready("mps-share"), "gpu")[0]
	require.Equal(t, first.UUID, second.UUID)
	ns.mpsShare("mps-share", "gpu", equalPartMiB)
	other.mpsShare("mps-share", "gpu", equalPartMiB)
	mine, theirs := ns.holdsMemory("mps-share", "main", 1000), other.holdsMemory("mps-share", "main", 1000)
	assert.Equal(t, []string{"allocated", "allocated"}, []string{mine.more(), theirs.more()})
	require.NoError(t, ns.silence())
}

// mpsInClaim leases a GPU for a claim that configures its own sharing, which needs no feature of Kubernetes. If MPS shares are advertised,
// it leases one of those GPUs too, because tests that have both stop the MPS service.
func mpsInClaim(t *testing.T) *namespace {
	t.Helper()
	if minor, err := minorVersion(); err == nil && minor < features[consumableCapacity].since {
		ns := inParallel(t, 1)
		ns.mpsService(t)
		return ns
	}
	ns, _ := mpsOnOneGPU(t)
	ns.gpus.lease(t, 1)
	return ns
}

// TestMPSInClaim: two pods, one with two containers, share the whole GPU of one claim, with the limits in the claim.
func TestMPSInClaim(t *testing.T) {
	ns := mpsInClaim(t)
	ns.apply("mps-in-claim/pods.yaml")
	grants := ns.grantedTo(ns.ready("first"), "gpu")
	require.Len(t, grants, 1)
	assert.Equal(t, "gpu", grants[0].Type)
	ns.ready("second")
	for _, at := range [][2]string{{"first", "main"}, {"first", "sidecar"}, {"second", "main"}} {
		ns.sees(at[0], at[1], grants...)
		ns.limitedTo(at[0], at[1], 20*1024)
		assert.Contains(t, ns.allocates(at[0], at[1], 0), "multiprocessors 66,", "half of 132")
	}
	first, second := ns.holdsMemory("first", "sidecar", 1000), ns.holdsMemory("second", "main", 1000)
	assert.Equal(t, []string{"allocated", "allocated"}, []string{first.more(), second.more()})
	ns.delete("pod", "first", "second")
	ns.delete("resourceclaim", "gpu-with-mps")
	ns.released(grants[0].UUID)
	require.NoError(t, ns.silence())
}

// TestMPSOwnVariables_CDIWins: MPS variables of the pod do not affect a container with a share.
func TestMPSOwnVariables_CDIWins(t *testing.T) {
	ns, index := mpsOnOneGPU(t)
	w := mpsPod("own-variables", index, "2Gi")
	w.env = map[string]string{
		"CUDA_MPS_PIPE_DIRECTORY": "/tmp/none", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=70G,1=70G", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10",
	}
	ns.create(w)
	ns.mpsShare("own-variables", "share", 2048)
	out := ns.do("exec", "own-variables", "--", "sh", "-c",
		"env | grep ^CUDA_MPS_ | sort; touch /run/prism/mps/x || true; grep ' /dev/shm ' /proc/mounts | tail -1")
	assert.Contains(t, out, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2048M\nCUDA_MPS_PIPE_DIRECTORY=/run/prism/mps\n")
	assert.Contains(t, ns.do("exec", "own-variables", "--", "ls", "/run/prism/mps"), "control\nlog\n")
	assert.Regexp(t, ` /dev/shm tmpfs rw,nosuid,nodev,noexec,`, out)
	assert.NotContains(t, ns.do("exec", "own-variables", "--", "ls", "/run/prism/mps"), "x\n")
	require.NoError(t, ns.silence())
}

// twoShares is a pod whose only container has MPS shares of two GPUs.
const twoShares = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: two-shares}
spec:
  devices:
    requests:
    - {name: first, exactly: {deviceClassName: mps.gpu.prism.dev, capacity: {requests: {memory: 1Gi}}}}
    - {name: second, exactly: {deviceClassName: mps.gpu.prism.dev, capacity: {requests: {memory: 1Gi}}}}
    constraints: [{distinctAttribute: gpu.prism.dev/parentUUID}]
---
apiVersion: v1
kind: Pod
metadata: {name: two-shares}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "` + testImage + `", imagePullPolicy: Never, command: [sleep, "3600"], resources: {claims: [{name: shares%s}]}}
  - name: other
    image: "` + testImage + `"
    imagePullPolicy: Never
    command: [sleep, "3600"]
    resources: {claims: [{name: shares, request: second}]}
  resourceClaims: [{name: shares, resourceClaimName: two-shares}]
`

// TestMPSTwoGPUsInContainer_Failed: a process is a client of one control daemon. So a container with shares of two GPUs fails with a
// reason, and a pod with a container for each GPU runs.
func TestMPSTwoGPUsInContainer_Failed(t *testing.T) {
	ns := mpsInParallel(t)
	require.NoError(t, ns.createText(fmt.Sprintf(twoShares, "")))
	message := ns.event("two-shares", "Failed", startLimit)
	t.Log(message)
	assert.Contains(t, message, "a container that uses a GPU with MPS cannot use another GPU, MIG device or share")
	ns.delete("pod/two-shares", "resourceclaim/two-shares")

	require.NoError(t, ns.createText(fmt.Sprintf(twoShares, ", request: first")))
	grants := ns.grantedTo(ns.ready("two-shares"), "shares")
	require.Len(t, grants, 2)
	ns.sees("two-shares", "main", forRequest(t, grants, "first")...)
	ns.sees("two-shares", "other", forRequest(t, grants, "second")...)
	ns.limitedTo("two-shares", "main", 1024)
	ns.limitedTo("two-shares", "other", 1024)
	require.NoError(t, ns.silence())
}

// TestMPSAndOtherModes_ExcludeEachOther: while a GPU has MPS shares, it is neither time-sliced nor allocated as a whole.
func TestMPSAndOtherModes_ExcludeEachOther(t *testing.T) {
	ns, index := mpsOnOneGPU(t)
	ns.create(mpsPod("mps", index, ""))
	uuid := ns.grantedTo(ns.ready("mps"), "share")[0].UUID
	ns.createShare("time-sliced", index)
	ns.waits("time-sliced")
	ns.create(workload{name: "whole", ref: "gpu", request: request{
		class: gpuClass, selectors: []string{fmt.Sprintf(`device.attributes["gpu.prism.dev"].index == %d`, index)},
	}})
	ns.waits("whole")
	ns.delete("pod", "whole")
	ns.delete("pod", "mps")
	ns.share("time-sliced", "share")
	require.NoError(t, ns.computeMode(uuid, modeDefault))
	ns.create(mpsPod("again", index, ""))
	ns.waits("again")
	ns.delete("pod", "time-sliced")
	ns.ready("again")
	require.NoError(t, ns.silence())
}
