package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestWholeFromTemplate(t *testing.T) {
	ns := inParallel(t, 1)
	ns.apply("whole-gpu/pod.yaml")
	pod := ns.ready("whole-gpu")
	grants := ns.grantedTo(pod, "gpu")
	require.Len(t, grants, 1)
	ns.sees("whole-gpu", "main", grants...)
	require.NoError(t, ns.silence())

	description := ns.do("describe", "resourceclaim", ns.claimOf(pod, "gpu").Name)
	for _, fact := range []string{grants[0].UUID, grants[0].PCIBusID, grants[0].ProductName, grants[0].DriverVersion, "Prepared"} {
		assert.Contains(t, description, fact)
	}
}

func TestWholeSelected(t *testing.T) {
	ns := inParallel(t, 1)
	t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "deviceclass", "hopper.example.com")...) })
	ns.apply("select/pod.yaml")
	grants := ns.grantedTo(ns.ready("selected-gpu"), "gpu")
	require.Len(t, grants, 1)
	assert.Contains(t, grants[0].ProductName, "NVIDIA H100")
	ns.sees("selected-gpu", "main", grants...)
}

func TestWholeNothingFits(t *testing.T) {
	ns := inParallel(t, 0)
	ns.apply("select/nothing-fits.yaml")
	assert.Contains(t, ns.event("too-large", "FailedScheduling", startLimit), "cannot allocate all claims")
	assert.Empty(t, ns.pod("too-large").Spec.NodeName)
}

func TestWholeTwoGPUs(t *testing.T) {
	ns := inParallel(t, 2)
	ns.apply("two-gpus/pod.yaml")
	grants := ns.grantedTo(ns.ready("two-gpus"), "gpus")
	require.Len(t, grants, 2)
	require.NotEqual(t, grants[0].UUID, grants[1].UUID)
	ns.sees("two-gpus", "main", grants...)
}

func TestWholeSeveralRequests(t *testing.T) {
	ns := inParallel(t, 2)
	ns.apply("several-requests/pod.yaml")
	grants := ns.grantedTo(ns.ready("train-and-render"), "gpus")
	require.Len(t, grants, 2)
	assert.Equal(t, "render/hopper", forRequest(t, grants, "render")[0].request)
	ns.sees("train-and-render", "train", forRequest(t, grants, "train")...)
	ns.sees("train-and-render", "render", forRequest(t, grants, "render")...)
	ns.sees("train-and-render", "both", grants...)
}

func TestWholeSharedByContainers(t *testing.T) {
	ns := inParallel(t, 1)
	ns.apply("shared-by-containers/pod.yaml")
	grants := ns.grantedTo(ns.ready("two-containers"), "gpu")
	require.Len(t, grants, 1)
	ns.sees("two-containers", "first", grants...)
	ns.sees("two-containers", "second", grants...)
	ns.seesNothing("two-containers", "none")
}

func TestWholeSharedByPods(t *testing.T) {
	ns := inParallel(t, 1)
	ns.apply("shared-by-pods/pods.yaml")
	ns.ready("first")
	ns.ready("second")
	grants := ns.granted("shared-gpu")
	require.Len(t, grants, 1)
	ns.sees("first", "main", grants...)
	ns.sees("second", "main", grants...)

	ns.delete("pod", "first")
	ns.sees("second", "main", grants...)
	uid := string(ns.claim("shared-gpu").UID)
	files, err := ns.keptFor(uid, ns.name)
	require.NoError(t, err)
	assert.Len(t, files, claimFiles, "while the second pod runs")

	ns.delete("pod", "second")
	ns.checkNothingKept()
	eventually(t, startLimit, func() error {
		claim := ns.claim("shared-gpu")
		if claim.Status.Allocation != nil || len(claim.Status.Devices) > 0 {
			return errStillAllocated
		}
		return nil
	})
}

// TestWholeAllGPUsInUse: one pod more than the number of GPUs waits for a GPU.
func TestWholeAllGPUsInUse(t *testing.T) {
	ns := exclusive(t)
	ns.apply("nine-pods/job.yaml")
	ns.do("wait", "--for=jsonpath={.status.ready}=8", "--timeout="+startLimit.String(), "job/nine-pods")
	running, pending := ns.podsOf("nine-pods")
	require.Len(t, running, 8)
	require.Len(t, pending, 1)
	assert.Contains(t, ns.event(pending[0], "FailedScheduling", startLimit), "cannot allocate all claims")

	seen := map[string]string{}
	for _, name := range running {
		grants := ns.grantedTo(ns.pod(name), "gpu")
		require.Len(t, grants, 1)
		assert.Empty(t, seen[grants[0].UUID], "%s shares the GPU of another pod", name)
		seen[grants[0].UUID] = name
		ns.sees(name, "main", grants...)
	}

	ended := ns.grantedTo(ns.pod(running[3]), "gpu")[0].UUID
	ns.do("exec", running[3], "--", "touch", "/tmp/end")
	start := time.Now()
	grants := ns.grantedTo(ns.ready(pending[0]), "gpu")
	t.Logf("the ninth pod was ready %.1f s after another one exited", time.Since(start).Seconds())
	require.Len(t, grants, 1)
	assert.Equal(t, ended, grants[0].UUID, "the GPU that became free")
	ns.sees(pending[0], "main", grants...)
}

// TestWholeNodeReboots: claims from before the reboot are prepared again, for the same GPUs. The kubelet asks before the plugin is back,
// and then again after a minute or more. The tests that run in parallel share that wait, so this is the last test of those that run
// exclusively.
func TestWholeNodeReboots(t *testing.T) {
	ns := exclusive(t)
	ns.gpus.lease(t, 2)
	ns.apply("shared-by-containers/pod.yaml")
	before := ns.ready("two-containers")
	has := ns.grantedTo(before, "gpu")
	plugin := ns.plugin(t)

	ns.must(t, ns.localcluster("reboot", nodeName)...)
	start := time.Now()
	require.NoError(t, ns.learn())
	ns.startedSince(t, plugin)
	ns.advertises(t, ns.gpus.size, startLimit)
	t.Logf("the plugin was back %.1f s after the node", time.Since(start).Seconds())
	// The kubelet may register the plugin twice, as it first finds the socket from before the reboot. Other tests begin after that.
	ns.create(workload{name: "registered", ref: "gpu", request: request{class: gpuClass}})
	ns.do("wait", "--for=condition=Ready", "--timeout="+startLimit.String(), "pod/registered")
	ns.delete("pod", "registered")
	t.Parallel()
	eventually(t, startLimit, func() error { return ns.startedAgain(before) })
	t.Logf("the pod ran again %.1f s after the node was back", time.Since(start).Seconds())
	require.Equal(t, has, ns.grantedTo(ns.ready("two-containers"), "gpu"))
	ns.sees("two-containers", "first", has...)
	ns.sees("two-containers", "second", has...)
	ns.seesNothing("two-containers", "none")
}

// startedAgain returns an error until all containers of the pod run as new containers.
func (ns *namespace) startedAgain(before *corev1.Pod) error {
	var now corev1.Pod
	if err := ns.read(&now, "pod", before.Name); err != nil {
		return err
	}
	for i := range now.Status.ContainerStatuses {
		was, is := before.Status.ContainerStatuses[i], now.Status.ContainerStatuses[i]
		if is.State.Running == nil || is.ContainerID == was.ContainerID {
			return fmt.Errorf("container %s does not run again: %+v", is.Name, is.State)
		}
	}
	return nil
}
