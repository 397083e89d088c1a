package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/test/images"
)

const (
	collectorName     = "prism-collector"
	collectorSelector = "app.kubernetes.io/component=collector"
	// collectorValues are the chart's values for performance counters.
	collectorValues = "monitorDevices=PerNode,deviceClasses.perfmonDevices=PerGPU,profiler.collector.enabled=true"
	// countersAvailable is the condition of perfmon devices whose counters are recorded.
	countersAvailable = "PerfCountersAvailable"
	// recordsCounters is a configuration that requests counters.
	recordsCounters = `{"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "GPUMetricsConfig", "source": "NsightSystems"}`
	// standInDirectory is the directory on the node with the list of GPUs for the nsys of images.CountersImage.
	standInDirectory = "/var/lib/prism-e2e-counters"
)

// Reasons that the list contains for a GPU, in the words of nsys.
const (
	busyCounters    = "Already under profiling"
	privateCounters = "Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)

// counted begins a test with the collector of performance counters. Only these tests install it, since its pods have claims.
func counted(t *testing.T) *namespace {
	t.Helper()
	ns := profiledExclusive(t)
	label, _, _ := strings.Cut(adminLabel, "=")
	ns.must(t, ns.kubectl("label", "--overwrite", "namespace", system, adminLabel)...)
	t.Cleanup(func() {
		// A pod of the collector exits only if the plugin unprepares its claim.
		eventually(t, startLimit, func() error { return ns.noPods(collectorSelector) })
		ns.must(t, ns.kubectl("label", "namespace", system, label+"-")...)
		assert.NoError(t, os.RemoveAll(ns.nodePath(standInDirectory)))
	})
	ns.withValue(t, collectorValues)
	t.Cleanup(func() {
		if t.Failed() {
			out, err := ns.run("", ns.kubectl("logs", "--namespace", system, "--selector", collectorSelector, "--tail=200", "--prefix")...)
			t.Logf("log of the collector: %v\n%s", err, out)
			out, err = ns.run("", "sh", "-c", `cd "$0" && ls -lR . | head -n 200; tail -n 30 */state */inbox/*/note */inbox/*/nsys.log`, ns.collectorDirectory())
			t.Logf("files of the collector: %v\n%s", err, out)
		}
		_, err := ns.try("delete", "--all", "--timeout="+startLimit.String(), "pods,resourceclaims")
		assert.NoError(t, err)
	})
	ns.must(t, ns.kubectl("rollout", "status", "--namespace", system, "daemonset/"+collectorName, "--timeout="+startLimit.String())...)
	return ns
}

// collectorDirectory returns the collector's directory on the node.
func (c *cluster) collectorDirectory() string { return filepath.Join(c.stateDirectory(), "collector") }

// countedObjects returns a claim for these numbers of whole GPUs and of performance counters, with opaque configurations for the GPUs, and
// a pod with the same name.
func countedObjects(t *testing.T, name string, gpus, counters int64, configs ...string) (*resourceapi.ResourceClaim, runtime.Object) {
	t.Helper()
	w := workload{name: name, ref: "gpu", named: true, request: request{class: gpuClass, count: gpus}}
	objects := w.objects()
	claim, ok := objects[0].(*resourceapi.ResourceClaim)
	require.True(t, ok)
	devices := &claim.Spec.Devices
	if counters > 0 {
		devices.Requests = append(devices.Requests, resourceapi.DeviceRequest{Name: "counters", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: "perfmon." + driverName, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: counters,
		}})
	}
	if gpus == 1 && counters == 1 {
		parent := resourceapi.FullyQualifiedName(driverName + "/parentUUID")
		devices.Constraints = []resourceapi.DeviceConstraint{{Requests: []string{"gpu", "counters"}, MatchAttribute: &parent}}
	}
	for _, config := range configs {
		devices.Config = append(devices.Config, resourceapi.DeviceClaimConfiguration{
			Requests: []string{"gpu"},
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: driverName, Parameters: runtime.RawExtension{Raw: []byte(config)},
			}},
		})
	}
	return claim, objects[1]
}

// createCounted creates a pod whose claim has a whole GPU, and records its counters at once.
func (ns *namespace) createCounted(name string) {
	ns.t.Helper()
	claim, pod := countedObjects(ns.t, name, 1, 1, recordsCounters)
	require.NoError(ns.t, ns.createObject(claim))
	require.NoError(ns.t, ns.createObject(pod))
}

// countersSay waits until every perfmon device of the claim has the condition with this status and reason, and returns its message.
func (ns *namespace) countersSay(claim string, devices int, status metav1.ConditionStatus, reason string) string {
	ns.t.Helper()
	var message string
	eventually(ns.t, reportLimit, func() error {
		found := 0
		all := ns.claim(claim).Status.Devices
		for i := range all {
			if !strings.HasSuffix(all[i].Device, "-perfmon") {
				continue
			}
			found++
			condition := meta.FindStatusCondition(all[i].Conditions, countersAvailable)
			if condition == nil || condition.Status != status || condition.Reason != reason {
				return fmt.Errorf("claim %s must have %s %s with reason %s, has %+v", claim, countersAvailable, status, reason, all[i].Conditions)
			}
			message = condition.Message
		}
		if found != devices {
			return fmt.Errorf("the status of claim %s has %d perfmon devices, want %d", claim, found, devices)
		}
		return nil
	})
	ns.t.Log(message)
	return message
}

// TestCounters_SimulatedGPUs_Unsupported: Nsight Systems finds no simulated GPU. Pods run all the same, and their claims report its words.
// Claims that do not reserve the counters are refused by a sentence that names the request.
func TestCounters_SimulatedGPUs_Unsupported(t *testing.T) {
	ns := counted(t)
	ns.refusesUnreserved()
	ns.apply("gpu-counters/pod.yaml")
	ns.createCounted("at-once")
	pod := ns.ready("gpu-counters")
	ns.ready("at-once")
	ns.sees("gpu-counters", "main", forRequest(t, ns.grantedTo(pod, "gpu"), "gpu")...)
	for _, claim := range []string{ns.claimOf(pod, "gpu").Name, "at-once"} {
		assert.Contains(t, ns.countersSay(claim, 1, metav1.ConditionFalse, "Unsupported"), "NVIDIA GPUs not found")
	}
	assert.Empty(t, ns.allReports())
	ns.delete("pods,resourceclaims", "--all")

	ns.do("label", "namespace", ns.name, adminLabel)
	ns.apply("gpu-counters/node.yaml")
	claim := ns.claimOf(ns.ready("node-counters"), "counters").Name
	ns.countersSay(claim, ns.gpus.size, metav1.ConditionFalse, "Unsupported")
	ns.delete("pod", "node-counters")
	eventually(t, startLimit, ns.nothingCollected)
}

// refusesUnreserved checks that a claim without counters is refused when it is written, and one with the counters of only one of its GPUs
// when it is prepared.
func (ns *namespace) refusesUnreserved() {
	ns.t.Helper()
	claim, _ := countedObjects(ns.t, "without", 1, 0, recordsCounters)
	err := ns.retryUntilAnswered(func() error { return ns.createObject(claim) }, "resourceclaim/without")
	ns.isDenied("without", err, `request "gpu"`, "requires the perfmon device of each GPU", "add a request of class perfmon."+driverName)
	claim, pod := countedObjects(ns.t, "one-of-two", 2, 1, recordsCounters)
	require.NoError(ns.t, ns.createObject(claim))
	require.NoError(ns.t, ns.createObject(pod))
	ns.isRefused("one-of-two", "gpu", `request "gpu"`, "requires the perfmon device of GPU", "add a request of class perfmon."+driverName)
	ns.delete("pod,resourceclaim", "one-of-two")
}

// nothingCollected returns an error until the collector's directory contains no claim.
func (c *cluster) nothingCollected() error {
	left, err := filepath.Glob(filepath.Join(c.collectorDirectory(), "*-*"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("the node still has %s", strings.Join(left, ", "))
	}
	return err
}

// TestCounters_StandIn_Recorded: with an nsys that finds the simulated GPUs, counters are recorded by hand and at once, and a claim reports
// that another program uses the counters, or that the driver reserves them.
func TestCounters_StandIn_Recorded(t *testing.T) {
	needs(t, deviceTaints)
	ns := counted(t)
	ns.listsGPUs("")
	ns.standsIn()
	ns.recordsByHand()
	ns.waitsWhileBusy()
	ns.listsGPUs(privateCounters)
	ns.createCounted("private")
	ns.ready("private")
	assert.Contains(t, ns.countersSay("private", 1, metav1.ConditionFalse, "InsufficientPrivilege"), "RmProfilingAdminOnly")
	ns.delete("pod,resourceclaim", "private")
	eventually(t, startLimit, ns.nothingCollected)
}

// standsIn gives the collector the image whose nsys answers with the list of listsGPUs, and checks that its container sees all GPUs.
func (ns *namespace) standsIn() {
	ns.t.Helper()
	archive, err := images.Archive(context.Background(), ns.root, images.CountersImage)
	require.NoError(ns.t, err)
	ns.must(ns.t, ns.localcluster("load-image", archive)...)
	patch := fmt.Sprintf(`{"spec": {"template": {"spec": {
		"containers": [{"name": "collector", "image": %q, "volumeMounts": [{"name": "e2e", "mountPath": "/e2e", "readOnly": true}]}],
		"volumes": [{"name": "e2e", "hostPath": {"path": %q, "type": "Directory"}}]}}}}`, images.CountersImage, standInDirectory)
	ns.must(ns.t, ns.kubectl("patch", "daemonset", collectorName, "--namespace", system, "--patch", patch)...)
	ns.must(ns.t, ns.kubectl("rollout", "status", "--namespace", system, "daemonset/"+collectorName, "--timeout="+startLimit.String())...)
	boards, err := ns.boards()
	require.NoError(ns.t, err)
	list := ns.kubectl("exec", "--namespace", system, "daemonset/"+collectorName, "--container=collector", "--", "nvidia-smi", "-L")
	eventually(ns.t, startLimit, func() error { // the former pod may be chosen
		out, err := ns.run("", list...)
		for uuid := range boards {
			if err == nil && !strings.Contains(out, uuid) {
				err = fmt.Errorf("the collector does not see GPU %s: %s", uuid, out)
			}
		}
		return err
	})
}

// listsGPUs makes the nsys of the collector list all GPUs as supported, or as not supported for a reason.
func (ns *namespace) listsGPUs(reason string) {
	ns.t.Helper()
	h, err := ns.hardware()
	require.NoError(ns.t, err)
	slices.SortFunc(h.GPUs, func(a, b board) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	var gpus strings.Builder
	for i, b := range h.GPUs {
		fmt.Fprintf(&gpus, "\t%d: %s PCI[%s]\n", i, b.Name, b.PCI)
		if reason != "" {
			fmt.Fprintf(&gpus, "\t\t%s\n", reason)
		}
	}
	const first, none = "Possible --gpu-metrics-device values are:\n", "\tnone: Disable GPU Metrics [Default]\n"
	text := first + gpus.String() + "\tall: Select all supported GPUs\n" + none
	if reason != "" {
		text = first + none + "Some GPUs are not supported:\n" + gpus.String()
	}
	dir := ns.nodePath(standInDirectory)
	require.NoError(ns.t, os.MkdirAll(dir, 0o755))
	file := filepath.Join(dir, "gpus")
	require.NoError(ns.t, os.WriteFile(file+".new", []byte(text), 0o644))
	require.NoError(ns.t, os.Rename(file+".new", file))
}

// recordsByHand checks that commands record the counters of a claim with start: Manual, and that nothing is left of it after its pod but
// the report.
func (ns *namespace) recordsByHand() {
	ns.t.Helper()
	ns.apply("gpu-counters/pod.yaml")
	claim := ns.claimOf(ns.ready("gpu-counters"), "gpu").Name
	ns.countersSay(claim, 1, metav1.ConditionTrue, "Waiting")
	s := ns.waiting(claim, 1)[0]
	assert.Equal(ns.t, []string{"gpu-counters", nodeName}, []string{s.Spec.Process, s.Spec.Node})
	assert.Contains(ns.t, ns.command("sessions"), s.Name)
	assert.Empty(ns.t, ns.allReports(), "nothing is recorded yet")
	assert.Contains(ns.t, ns.command("start", s.Name), "Recording")
	ns.command("stop", s.Name)
	r := ns.reportsOf(claim, 1, "Ready")[0]
	assert.Equal(ns.t, []string{"gpu-counters", images.LaterNsysVersion, nodeName}, []string{r.Spec.Process, r.Spec.Tool, r.Spec.Node})
	ns.downloads(r)
	ns.waiting(claim, 1)
	ns.delete("pod", "gpu-counters")
	eventually(ns.t, startLimit, ns.nothingCollected)
	eventually(ns.t, reportLimit, func() error {
		left, err := ns.sessions()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("sessions of a claim that is gone: %+v", left)
		}
		return err
	})
	assert.Len(ns.t, ns.reportsOf(claim, 1, "Ready"), 1)
}

// waitsWhileBusy checks that a recording begins when another program has released the counters, that no claim gets them meanwhile, and
// that the recording ends with the pod.
func (ns *namespace) waitsWhileBusy() {
	ns.t.Helper()
	ns.listsGPUs(busyCounters)
	ns.createCounted("busy")
	ns.ready("busy")
	ns.countersSay("busy", 1, metav1.ConditionFalse, "PerfmonBusy")
	var device string
	for _, result := range ns.claim("busy").Status.Allocation.Devices.Results {
		if result.Request == "counters" {
			device = result.Device
		}
	}
	eventually(ns.t, startLimit, func() error { return ns.perfmonBusy(device, true) })
	ns.listsGPUs("")
	ns.countersSay("busy", 1, metav1.ConditionTrue, "Recording")
	eventually(ns.t, startLimit, func() error { return ns.perfmonBusy(device, false) })
	ns.delete("pod", "busy")
	ns.reportsOf("busy", 1, "Ready")
	eventually(ns.t, startLimit, ns.nothingCollected)
}

// perfmonBusy returns an error unless a perfmon device has the taint of counters that another program uses, or does not have it.
func (c *cluster) perfmonBusy(device string, want bool) error {
	published, err := c.resourceSlices()
	if err != nil {
		return err
	}
	for i := range published {
		for _, d := range published[i].Spec.Devices {
			if d.Name != device {
				continue
			}
			is := slices.ContainsFunc(d.Taints, func(taint resourceapi.DeviceTaint) bool {
				return taint.Key == driverName+"/perfmon-busy" && taint.Effect == resourceapi.DeviceTaintEffectNoSchedule
			})
			if is != want {
				text, err := json.Marshal(d.Taints)
				return errors.Join(err, fmt.Errorf("device %s has the taints %s", device, text))
			}
			return nil
		}
	}
	return fmt.Errorf("device %s is not published", device)
}
