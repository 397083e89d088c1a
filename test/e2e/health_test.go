package e2e

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// sickGPU is the index of the GPU that tests of health break. It is advertised whole.
const sickGPU = 5

// TestHealth_RecoveryAction_NewPodsElsewhere: a GPU for which the driver asks for a reset gets no new pods. The pod that has it goes on, and
// its status says why it is unhealthy. Other GPUs are not concerned. When the driver asks for nothing any more, the GPU returns by itself.
func TestHealth_RecoveryAction_NewPodsElsewhere(t *testing.T) {
	ns := exclusive(t)
	before := ns.plugin(t)
	ns.create(ns.onSickGPU("stays"))
	running := ns.ready("stays")
	has := ns.grantedTo(running, "gpu")
	ns.breaks("recovery-action", "1")
	start := time.Now()
	tainted := ns.isTainted(has[0].UUID, "recovery-action", "gpu-reset")
	t.Logf("the taint was stored within %.2f s", time.Since(start).Seconds())
	ns.isUnhealthy("stays", "gpu", "RecoveryAction", "reset")
	t.Logf("the statuses of pod and claim were stored within %.2f s", time.Since(start).Seconds())
	if tainted != nil {
		assert.Equal(t, resourceapi.DeviceTaintEffectNoSchedule, tainted.Effect)
		assert.NotNil(t, tainted.TimeAdded)
	}
	require.NoError(t, ns.onlyTainted(has[0].UUID))
	t.Log(ns.warned("GPUUnhealthy", has[0].UUID))

	ns.create(ns.onSickGPU("waits"), workload{name: "elsewhere", ref: "gpu", request: request{class: gpuClass}})
	assert.NotEqual(t, has[0].UUID, ns.grantedTo(ns.ready("elsewhere"), "gpu")[0].UUID)
	ns.waits("waits")
	now := ns.pod("stays")
	assert.Equal(t, running.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID)

	ns.recovers(has[0].UUID)
	eventually(t, startLimit, func() error { return ns.hasHealth("stays", corev1.ResourceHealthStatusHealthy, "") })
	eventually(t, startLimit, func() error { return ns.hasCondition("stays", "gpu", "") })
	ns.delete("pod/stays")
	ns.sees("waits", "main", ns.grantedTo(ns.ready("waits"), "gpu")...)
	assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, ns.plugin(t).Status.ContainerStatuses[0].ContainerID)
}

// TestHealth_AllocatedThenTainted_Refused: a claim that was allocated before its GPU became unhealthy is refused in one sentence, unless it
// tolerates the taint.
func TestHealth_AllocatedThenTainted_Refused(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	device := ns.deviceAt(sickGPU)
	ns.breaks("row-remap", "failure")
	ns.isTainted(ns.uuidAt(sickGPU), "memory", "row-remap-failure")
	w := ns.onSickGPU("allocated")
	w.named = true
	ns.create(w) // the pod stays Pending
	ns.allocate("allocated", device)
	sentence := ns.refused("allocated", startLimit)
	t.Log(sentence)
	assert.Contains(t, sentence, "row")
	ns.notStarted(ns.pod("allocated"))
	ns.delete("pod/allocated", "resourceclaim/allocated")

	require.NoError(t, ns.createText(fmt.Sprintf(toleratingPod, gpuClass, driverName, sickGPU, driverName)))
	ns.ready("diagnoses")
	ns.sees("diagnoses", "main", ns.granted("diagnoses")...)
	ns.recovers(ns.uuidAt(sickGPU))
}

// toleratingPod tolerates the memory errors of a GPU.
const toleratingPod = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: diagnoses}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: %s
        selectors:
        - cel: {expression: 'device.attributes["%s"].index == %d'}
        tolerations:
        - {key: %s/memory, operator: Exists, effect: NoSchedule}
---
apiVersion: v1
kind: Pod
metadata: {name: diagnoses}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "localhost/prism-test:1", imagePullPolicy: Never, command: [sleep, "3600"], resources: {claims: [{name: gpu}]}}
  resourceClaims:
  - {name: gpu, resourceClaimName: diagnoses}
`

// TestHealth_NoExecute_PodReplaced: a key that is configured to evict has Kubernetes delete the pod, and its Job starts another one on a
// healthy GPU.
func TestHealth_NoExecute_PodReplaced(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	ns.withValue(t, "health.noExecute={recovery-action}")
	ns.rolledOut(t)
	require.NoError(t, ns.createText(fmt.Sprintf(trainingJob, gpuClass)))
	var pod string
	eventually(t, startLimit, func() error {
		running, _ := ns.podsOf("train")
		if len(running) != 1 {
			return fmt.Errorf("%d pods run", len(running))
		}
		pod = running[0]
		return nil
	})
	has := ns.grantedTo(ns.ready(pod), "gpu")
	ns.breaksAt(has[0].Index, "recovery-action", "1")
	start := time.Now()
	assert.Equal(t, resourceapi.DeviceTaintEffectNoExecute, ns.isTainted(has[0].UUID, "recovery-action", "gpu-reset").Effect)
	eventually(t, startLimit, func() error {
		running, _ := ns.podsOf("train")
		if len(running) != 1 || running[0] == pod {
			return fmt.Errorf("pods %v run", running)
		}
		pod = running[0]
		return nil
	})
	assert.NotEqual(t, has[0].UUID, ns.grantedTo(ns.ready(pod), "gpu")[0].UUID)
	t.Logf("another pod ran %.1f s after the fault", time.Since(start).Seconds())
	ns.recovers(has[0].UUID)
}

// trainingJob has one pod with a GPU.
const trainingJob = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: train}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: %s}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  backoffLimit: 4
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: "localhost/prism-test:1", imagePullPolicy: Never, command: [sleep, "3600"], resources: {claims: [{name: gpu}]}}
      resourceClaims:
      - {name: gpu, resourceClaimTemplateName: train}
`

// TestHealth_NoExecute_ExtendedResourcePod_Evicted: a key that is configured to evict also evicts a pod that has its GPU by a resource name,
// from Kubernetes 1.37.2 on (https://github.com/kubernetes/kubernetes/issues/141290).
func TestHealth_NoExecute_ExtendedResourcePod_Evicted(t *testing.T) {
	needs(t, extendedResources)
	if minor, err := minorVersion(); err != nil || minor < 37 {
		require.NoError(t, err)
		t.Skipf("Kubernetes 1.%d evicts no such pods", minor)
	}
	ns := exclusive(t)
	ns.withValue(t, "health.noExecute={recovery-action}")
	ns.rolledOut(t)
	ns.waitForNames(t, startLimit, "nvidia.com/gpu")
	ns.create(limited("leaves", "nvidia.com/gpu", 1))
	has := ns.requested("leaves")[0]
	ns.breaksAt(has.Index, "recovery-action", "1")
	assert.Equal(t, resourceapi.DeviceTaintEffectNoExecute, ns.isTainted(has.UUID, "recovery-action", "gpu-reset").Effect)
	eventually(t, startLimit, func() error { return ns.podGone("leaves") })
	ns.recovers(has.UUID)
}

// TestHealth_GPUHangs_OthersUndisturbed: a GPU that answers no call is tainted, while pods start on the others. It returns when it answers.
func TestHealth_GPUHangs_OthersUndisturbed(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	before, uuid := ns.plugin(t), ns.uuidAt(sickGPU)
	ns.breaks("hang")
	start := time.Now()
	ns.isTainted(uuid, "gpu-lost", "hung")
	t.Logf("the taint was stored %.1f s after the GPU had hung", time.Since(start).Seconds())
	require.NoError(t, ns.onlyTainted(uuid))
	ns.apply("two-gpus/pod.yaml")
	assert.NotContains(t, uuidsOf(ns.grantedTo(ns.ready("two-gpus"), "gpus")...), uuid)
	ns.recovers(uuid)
	assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, ns.plugin(t).Status.ContainerStatuses[0].ContainerID)
}

// TestHealth_Restarts_SameTaints: whatever restarts, the taint of a sick GPU stays with the time at which it began.
func TestHealth_Restarts_SameTaints(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	plugin, uuid := ns.freshPlugin(t), ns.uuidAt(sickGPU)
	ns.breaks("gpu-lost")
	began := ns.isTainted(uuid, "gpu-lost", "lost").TimeAdded
	same := func(after string) {
		t.Helper()
		ns.advertises(t, ns.gpus.size, startLimit)
		taint := ns.isTainted(uuid, "gpu-lost", "lost")
		assert.True(t, began.Equal(taint.TimeAdded), "%s: %s, before %s", after, taint.TimeAdded, began)
		require.NoError(t, ns.onlyTainted(uuid))
	}
	ns.must(t, ns.onNode("kill", "-KILL", ns.pid(t, plugin))...)
	eventually(t, startLimit, func() error { return ns.restarted(plugin) })
	same("the plugin was killed")
	ns.must(t, ns.localcluster("restart", nodeName, "kubelet")...)
	same("the kubelet has restarted")
	ns.must(t, ns.kubectl("delete", "resourceslices", "--field-selector", "spec.driver="+driverName)...)
	same("the ResourceSlices were deleted")
	ns.must(t, ns.kubectl("rollout", "restart", "--namespace", system, "daemonset/"+pluginName)...)
	ns.rolledOut(t)
	same("the plugin was replaced")
	ns.recovers(uuid)
}

// TestHealth_AllLost_FewWrites: GPUs that are lost together are tainted by few writes.
func TestHealth_AllLost_FewWrites(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	before := ns.versions()
	for index := range nodeGPUs {
		ns.breaksAt(index, "gpu-lost")
	}
	boards, err := ns.boards()
	require.NoError(t, err)
	start := time.Now()
	for uuid := range boards {
		ns.isTainted(uuid, "gpu-lost", "lost")
	}
	t.Logf("all were tainted %.1f s after the last one was lost", time.Since(start).Seconds())
	for name, generation := range ns.versions() {
		assert.LessOrEqual(t, generation-before[name], int64(2), "ResourceSlice %s was written more often", name)
	}
	for uuid := range boards {
		ns.recovers(uuid)
	}
}

// TestHealth_LostGPUReset_BackWithoutRestart: a lost GPU that is drained, released and reset returns by itself, with the same UUID.
func TestHealth_LostGPUReset_BackWithoutRestart(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	plugin, device, uuid := ns.plugin(t), ns.deviceAt(sickGPU), ns.uuidAt(sickGPU)
	ns.breaks("gpu-lost")
	ns.isTainted(uuid, "gpu-lost", "lost")
	ns.drained(t, nodeName, device)
	ns.isTainted(uuid, "maintenance", "")
	t.Log(ns.releases(t, device))
	eventually(t, startLimit, func() error {
		_, err := ns.run("", ns.simgpu("reset", strconv.Itoa(sickGPU))...)
		return err
	})
	ns.endRelease(t, device)
	start := time.Now()
	eventually(t, startLimit, func() error { return ns.hasOnly(uuid, "maintenance") })
	t.Logf("the GPU was not lost any more %.1f s after the end of the release", time.Since(start).Seconds())
	ns.must(t, ns.prism("gpu", "undrain", nodeName, device)...)
	ns.recovers(uuid)
	ns.create(ns.onSickGPU("back"))
	ns.sees("back", "main", ns.grantedTo(ns.ready("back"), "gpu")...)
	assert.Equal(t, plugin.Status.ContainerStatuses[0].ContainerID, ns.plugin(t).Status.ContainerStatuses[0].ContainerID)
}

// TestHealth_LayoutChanges_TaintFollows: devices that a sick GPU gets by another layout have its taint, with the time at which it began.
func TestHealth_LayoutChanges_TaintFollows(t *testing.T) {
	needs(t, deviceTaints)
	ns := migExclusive(t)
	uuid := ns.uuidAt(firstMIG)
	ns.breaksAt(firstMIG, "recovery-action", "1")
	began := ns.isTainted(uuid, "recovery-action", "gpu-reset").TimeAdded
	follows := func(name string, devices int) {
		t.Helper()
		ns.configured(t, name)
		eventually(t, startLimit, func() error { return ns.migDevicesOf(firstMIG, devices) })
		taint := ns.isTainted(uuid, "recovery-action", "gpu-reset")
		assert.True(t, began.Equal(taint.TimeAdded), "configuration %q: %s, before %s", name, taint.TimeAdded, began)
		require.NoError(t, ns.onlyTainted(uuid))
	}
	follows("whole", 0)
	follows("", placements)
	ns.recovers(uuid)
}
