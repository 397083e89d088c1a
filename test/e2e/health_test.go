package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sickGPU is the index of the GPU that tests of health break. It is advertised whole.
const sickGPU = 5

// TestHealth_RecoveryAction_NewPodsElsewhere: a GPU for which the driver asks for a reset gets no new pods. The pod that has it goes on, and
// its status says why it is unhealthy. Other GPUs are not concerned. When the driver asks for nothing any more, the GPU returns by itself.
func TestHealth_RecoveryAction_NewPodsElsewhere(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	before := ns.plugin(t)
	ns.create(ns.onSickGPU("stays"))
	running := ns.ready("stays")
	has := ns.grantedTo(running, "gpu")
	ns.breaks("recovery-action", "1")
	start := time.Now()
	tainted := ns.isTainted(has[0].UUID, "recovery-action", "gpu-reset")
	t.Logf("the taint was stored within %.2f s", time.Since(start).Seconds())
	assert.Equal(t, resourceapi.DeviceTaintEffectNoSchedule, tainted.Effect)
	assert.NotNil(t, tainted.TimeAdded)
	require.NoError(t, ns.onlyTainted(has[0].UUID))
	t.Log(ns.warned("GPUUnhealthy", has[0].UUID))
	ns.isUnhealthy("stays", "gpu", "RecoveryAction", "reset")

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
	for uuid := range boards {
		ns.isTainted(uuid, "gpu-lost", "lost")
	}
	for name, generation := range ns.versions() {
		assert.LessOrEqual(t, generation-before[name], int64(2), "ResourceSlice %s was written more often", name)
	}
	ns.must(t, ns.simgpu("inject", "clear")...)
	for uuid := range boards {
		ns.isHealthy(uuid)
	}
}

// onSickGPU is a pod with the GPU that the test breaks.
func (ns *namespace) onSickGPU(name string) workload {
	return workload{name: name, ref: "gpu", request: request{
		class: gpuClass, selectors: []string{fmt.Sprintf("device.attributes[%q].index == %d", driverName, sickGPU)},
	}}
}

// breaks injects a fault into the sick GPU, until the end of the test at the latest.
func (ns *namespace) breaks(fault ...string) {
	ns.t.Helper()
	ns.breaksAt(sickGPU, fault...)
}

func (ns *namespace) breaksAt(index int, fault ...string) {
	ns.t.Helper()
	ns.must(ns.t, ns.simgpu(append(append([]string{"inject"}, fault...), "--gpu", strconv.Itoa(index))...)...)
	ns.t.Cleanup(func() { _, _ = ns.run("", ns.simgpu("inject", "clear")...) }) // the test may have ended it
}

// recovers ends all faults, and waits until the GPU has no taint.
func (ns *namespace) recovers(uuid string) {
	ns.t.Helper()
	ns.must(ns.t, ns.simgpu("inject", "clear")...)
	start := time.Now()
	ns.isHealthy(uuid)
	ns.t.Logf("the GPU was without taints after %.1f s", time.Since(start).Seconds())
}

// uuidAt is the UUID of the GPU with that index.
func (ns *namespace) uuidAt(index int) string {
	ns.t.Helper()
	boards, err := ns.boards()
	require.NoError(ns.t, err)
	for uuid := range boards {
		if boards[uuid].Ordinal == index {
			return uuid
		}
	}
	require.Failf(ns.t, "no such GPU", "index %d", index)
	return ""
}

// taintsOf lists the taints of the devices of a GPU, by device, on all nodes.
func (c *cluster) taintsOf(uuid string) (map[string][]resourceapi.DeviceTaint, error) {
	published, err := c.resourceSlices()
	taints := map[string][]resourceapi.DeviceTaint{}
	for i := range published {
		for _, d := range published[i].Spec.Devices {
			if parent := d.Attributes["parentUUID"].StringValue; parent != nil && *parent == uuid {
				taints[published[i].Spec.Pool.Name+"/"+d.Name] = d.Taints
			}
		}
	}
	return taints, err
}

// isTainted waits until all devices of a GPU have a taint with this key and value, and returns it.
func (ns *namespace) isTainted(uuid, key, value string) (found resourceapi.DeviceTaint) {
	ns.t.Helper()
	eventually(ns.t, startLimit, func() error {
		devices, err := ns.taintsOf(uuid)
		if err == nil && len(devices) == 0 {
			err = fmt.Errorf("no device of GPU %s is published", uuid)
		}
		for name, taints := range devices {
			at := slices.IndexFunc(taints, func(taint resourceapi.DeviceTaint) bool {
				return taint.Key == driverName+"/"+key && taint.Value == value
			})
			if at < 0 {
				return errors.Join(err, fmt.Errorf("device %s has taints %+v, not %s=%s", name, taints, key, value))
			}
			found = taints[at]
		}
		return err
	})
	return found
}

// isHealthy waits until no device of a GPU has a taint.
func (ns *namespace) isHealthy(uuid string) {
	ns.t.Helper()
	eventually(ns.t, startLimit, func() error {
		devices, err := ns.taintsOf(uuid)
		if err == nil && len(devices) == 0 {
			err = fmt.Errorf("no device of GPU %s is published", uuid)
		}
		for name, taints := range devices {
			if len(taints) > 0 {
				err = errors.Join(err, fmt.Errorf("device %s has taints %+v", name, taints))
			}
		}
		return err
	})
}

// onlyTainted returns an error if a device of another GPU has a taint.
func (ns *namespace) onlyTainted(uuid string) error {
	boards, err := ns.boards()
	for other := range boards {
		devices, err2 := ns.taintsOf(other)
		err = errors.Join(err, err2)
		for name, taints := range devices {
			if other != uuid && len(taints) > 0 {
				err = errors.Join(err, fmt.Errorf("device %s has taints %+v", name, taints))
			}
		}
	}
	return err
}

// isUnhealthy waits until the statuses of pod and claim say that the pod's GPU is unhealthy, with a message that contains why.
func (ns *namespace) isUnhealthy(pod, ref, reason, why string) {
	ns.t.Helper()
	eventually(ns.t, startLimit, func() error { return ns.hasCondition(pod, ref, reason) })
	eventually(ns.t, startLimit, func() error { return ns.hasHealth(pod, corev1.ResourceHealthStatusUnhealthy, why) })
}

// hasCondition returns an error unless the condition Healthy of the pod's claim is False with that reason, or without a reason, is absent.
func (ns *namespace) hasCondition(pod, ref, reason string) error {
	claim := ns.claimOf(ns.pod(pod), ref)
	for i := range claim.Status.Devices {
		condition := meta.FindStatusCondition(claim.Status.Devices[i].Conditions, "Healthy")
		switch {
		case reason == "" && condition == nil:
		case condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != reason:
			return fmt.Errorf("condition Healthy of claim %s: %+v", claim.Name, condition)
		default:
			ns.t.Log(condition.Message)
		}
	}
	return nil
}

// hasHealth returns an error unless the pod's status has this health of its devices, and a message that contains why. Kubernetes 1.35 does
// not show it.
func (ns *namespace) hasHealth(pod string, health corev1.ResourceHealthStatus, why string) error {
	if minor, err := minorVersion(); err != nil || minor < 36 {
		return err
	}
	var seen []string
	for _, container := range ns.pod(pod).Status.ContainerStatuses {
		for _, status := range container.AllocatedResourcesStatus {
			for _, resource := range status.Resources {
				message := ""
				if resource.Message != nil {
					message = *resource.Message
				}
				if resource.Health == health && strings.Contains(message, why) {
					return nil
				}
				seen = append(seen, fmt.Sprintf("%s %s: %s %s", status.Name, resource.ResourceID, resource.Health, message))
			}
		}
	}
	return fmt.Errorf("pod %s shows %q, not %s", pod, seen, health)
}

// versions are the generations of the driver's ResourceSlices by name.
func (ns *namespace) versions() map[string]int64 {
	ns.t.Helper()
	published, err := ns.resourceSlices()
	require.NoError(ns.t, err)
	generations := map[string]int64{}
	for i := range published {
		generations[published[i].Name] = published[i].Generation
	}
	return generations
}
