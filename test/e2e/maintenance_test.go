package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestMaintenance_DrainResetValidate_BackInService: an administrator takes one GPU out of service while its pod has a budget, has Prism release
// it, resets it with the vendor's tool, tests it, and puts it back. The other GPUs work all the time.
func TestMaintenance_DrainResetValidate_BackInService(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	before, device, uuid := ns.plugin(t), ns.deviceAt(sickGPU), ns.uuidAt(sickGPU)
	ns.create(ns.onSickGPU("works"))
	ns.ready("works")
	ns.do("label", "pod", "works", "app=works")
	require.NoError(t, ns.createText(budget))
	ns.breaks("recovery-action", "1")
	ns.isTainted(uuid, "recovery-action", "gpu-reset")

	t.Cleanup(func() { _, _ = ns.run("", ns.prism("gpu", "undrain", nodeName, "--all")...) }) // the test may have done it
	out, err := ns.run("", ns.prism("gpu", "drain", nodeName, device, "--reason", "reset of row 7", "--evict", "--force", "--timeout", "10s")...)
	t.Log(out, err)
	require.Error(t, err, "the budget holds")
	assert.Contains(t, out+err.Error(), "budget")
	ns.isTainted(uuid, "maintenance", "")
	assert.Equal(t, corev1.PodRunning, ns.pod("works").Status.Phase)
	assert.Contains(t, ns.must(t, ns.prism("gpu", "list", nodeName)...), "reset of row 7")
	ns.delete("poddisruptionbudget/works")
	t.Log(ns.must(t, ns.prism("gpu", "drain", nodeName, device, "--reason", "reset of row 7", "--evict", "--force", "--timeout", startLimit.String())...))
	eventually(t, startLimit, func() error { return ns.podGone("works") })

	require.ErrorContains(t, ns.reset(), "In use by another client", "the plugin has the GPU attached")
	start := time.Now()
	event := ns.releases(t, device)
	eventually(t, startLimit, ns.reset)
	t.Logf("the GPU was reset %.1f s after the command that releases it: %s", time.Since(start).Seconds(), event)
	ns.apply("whole-gpu/pod.yaml") // a whole GPU is prepared without the driver
	assert.NotEqual(t, uuid, ns.grantedTo(ns.ready("whole-gpu"), "gpu")[0].UUID)
	ns.endRelease(t, device)
	eventually(t, startLimit, func() error { return ns.hasOnly(uuid, "maintenance") })

	report := ns.must(t, ns.prism("validate", nodeName, "--gpu", device, "--timeout", startLimit.String())...)
	t.Log(report)
	assert.True(t, strings.HasSuffix(strings.TrimSpace(report), validated))
	ns.must(t, ns.prism("gpu", "undrain", nodeName, device)...)
	ns.recovers(uuid)
	assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, ns.plugin(t).Status.ContainerStatuses[0].ContainerID)
}

// budget lets no pod of the app be evicted.
const budget = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: works}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: works}}}
`

// TestMaintenance_InvalidCommands_ReportedOnce: a command that cannot be carried out is reported in one sentence, and changes nothing.
func TestMaintenance_InvalidCommands_ReportedOnce(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	device := ns.deviceAt(sickGPU)
	for key, value := range map[string]string{
		"maintenance." + driverName + "/gpu-00000000": "x", "heal." + driverName + "/" + device: "yesterday",
		"release." + driverName + "/" + device: "2020-01-01T00:00:00Z",
	} {
		ns.must(t, ns.kubectl("annotate", "--overwrite", "node", nodeName, key+"="+value)...)
		t.Cleanup(func() { ns.must(t, ns.kubectl("annotate", "node", nodeName, key+"-")...) })
		t.Log(ns.warned("GPUCommandInvalid", key))
	}
	ns.isHealthy(ns.uuidAt(sickGPU))
}

// TestMaintenance_NodeCondition_TaintsNamedGPU: a condition of another program taints the GPU that its message names, until it is False.
func TestMaintenance_NodeCondition_TaintsNamedGPU(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	ns.withValue(t, "health.nodeConditions={GpuXidError}")
	ns.rolledOut(t)
	uuid := ns.uuidAt(sickGPU)
	set := func(status string) {
		t.Helper()
		ns.must(t, ns.kubectl("patch", "node", nodeName, "--subresource=status", "--type=strategic", "--patch", fmt.Sprintf(
			`{"status": {"conditions": [{"type": "GpuXidError", "status": %q, "reason": "XID", "message": "XID 79 on %s"}]}}`, status, uuid))...)
	}
	t.Cleanup(func() { set("False") })
	set("True")
	ns.isTainted(uuid, "node-condition", "GpuXidError")
	require.NoError(t, ns.onlyTainted(uuid))
	set("False")
	ns.isHealthy(uuid)
}

// TestMaintenance_ExtendedResourcePod_Evicted: a pod that has its GPU by a resource name is evicted, too.
func TestMaintenance_ExtendedResourcePod_Evicted(t *testing.T) {
	needs(t, extendedResources)
	ns := migExclusive(t)
	ns.waitForNames(t, startLimit, "nvidia.com/gpu")
	ns.create(limited("works", "nvidia.com/gpu", 1))
	has := ns.requested("works")[0]
	t.Log(ns.drained(t, nodeName, ns.deviceAt(int64(has.Index)), "--evict", "--force", "--timeout", startLimit.String()))
	eventually(t, startLimit, func() error { return ns.podGone("works") })
	ns.create(limited("again", "nvidia.com/gpu", 1))
	assert.NotEqual(t, has.UUID, ns.requested("again")[0].UUID)
}

// TestMaintenance_Release_MIGClaimWaits: while a GPU is released, no MIG device can be created on the others. A claim for one waits, and its
// status says until when. It is prepared as soon as the release ends.
func TestMaintenance_Release_MIGClaimWaits(t *testing.T) {
	needs(t, deviceTaints)
	ns := migExclusive(t)
	device := ns.deviceAt(sickGPU)
	ns.drained(t, nodeName, device)
	t.Log(ns.releases(t, device))
	ended := false
	t.Cleanup(func() {
		if !ended {
			ns.endRelease(t, device)
		}
	})
	ns.createMIG("waits", "1g.10gb", 7)
	eventually(t, startLimit, func() error { return ns.assigned("waits") })
	sentence := ns.refused(ns.claimOf(ns.pod("waits"), "mig").Name, startLimit)
	t.Log(sentence)
	assert.Regexp(t, `: GPU released for maintenance until [^ ]+ \(will be retried\)$`, sentence)
	ns.endRelease(t, device)
	ended = true
	ns.migDevice("waits")
}

// TestMaintenance_Release_ForeignProcessesListed: a process that has a released GPU open is named in the Event, since a reset is refused until it
// has exited.
func TestMaintenance_Release_ForeignProcessesListed(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	ns.withValue(t, "monitorDevices=PerNode")
	ns.rolledOut(t)
	ns.do("label", "namespace", ns.name, adminLabel)
	ns.apply("monitor/pod.yaml")
	ns.ready("monitor")
	ns.works(use{pod: "monitor", gibibytes: 1, percent: 10})
	device := ns.deviceAt(sickGPU)
	ns.drained(t, nodeName, device)
	event := ns.releases(t, device)
	t.Log(event)
	listed := regexp.MustCompile(`pid (\d+) \(gpu-load\) of pod (\S+)$`).FindStringSubmatch(event)
	require.NotNil(t, listed)
	assert.Equal(t, ns.name+"/monitor", listed[2])
	assert.Equal(t, "gpu-load\n", ns.must(t, ns.onNode("cat", "/proc/"+listed[1]+"/comm")...))
	require.ErrorContains(t, ns.reset(), "In use by another client")
	ns.delete("pod/monitor")
	eventually(t, startLimit, ns.reset)
	ns.endRelease(t, device)
}

// releases has Prism release a GPU, and returns the Event about it.
func (ns *namespace) releases(t *testing.T, device string) string {
	t.Helper()
	_, until, found := strings.Cut(ns.must(t, ns.prism("gpu", "release", nodeName, device)...), " until ")
	require.True(t, found)
	until, _, _ = strings.Cut(until, ";")
	return ns.warned("GPUReleased", device+" is released until "+until)
}

// endRelease removes the annotation of a release.
func (ns *namespace) endRelease(t *testing.T, device string) {
	t.Helper()
	ns.must(t, ns.kubectl("annotate", "node", nodeName, "release."+driverName+"/"+device+"-")...)
}

// prism is a command line of kubectl prism.
func (ns *namespace) prism(args ...string) []string {
	return append([]string{filepath.Join(ns.root, "bin/kubectl-prism"), "--kubeconfig", ns.variable("KUBECONFIG"), "--namespace", ns.name}, args...)
}

// reset resets the sick GPU with the vendor's tool.
func (ns *namespace) reset() error {
	const root = "/run/nvidia/driver"
	out, err := ns.run("", ns.onNode("env", "LD_LIBRARY_PATH="+root+libraryDir, root+"/usr/bin/nvidia-smi", "--gpu-reset", "-i", strconv.Itoa(sickGPU))...)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}

// podGone returns an error until the pod does not exist.
func (ns *namespace) podGone(pod string) error {
	var list corev1.PodList
	err := ns.read(&list, "pods", "--field-selector", "metadata.name="+pod)
	if err == nil && len(list.Items) > 0 {
		err = fmt.Errorf("pod %s is there", pod)
	}
	return err
}

// hasOnly returns an error until all devices of the GPU have exactly one taint, with this key.
func (ns *namespace) hasOnly(uuid, key string) error {
	devices, err := ns.taintsOf(uuid)
	for name, taints := range devices {
		if len(taints) != 1 || taints[0].Key != driverName+"/"+key {
			err = errors.Join(err, fmt.Errorf("device %s has taints %+v", name, taints))
		}
	}
	return err
}
