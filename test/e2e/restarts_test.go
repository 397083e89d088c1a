package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWholeKubeletRestarts(t *testing.T) {
	ns := exclusive(t)
	ns.survives(func() { ns.must(t, ns.localcluster("restart", nodeName, "kubelet")...) })
}

func TestWholeContainerdRestarts(t *testing.T) {
	ns := exclusive(t)
	ns.survives(func() { ns.must(t, ns.localcluster("restart", nodeName, "containerd")...) })
}

func TestWholePluginKilled(t *testing.T) {
	ns := exclusive(t)
	plugin := ns.freshPlugin(t)
	ns.survives(func() {
		ns.must(t, ns.onNode("kill", "-KILL", ns.pid(t, plugin))...)
		start := time.Now()
		eventually(t, startLimit, func() error { return ns.restarted(plugin) })
		t.Logf("the kubelet had a new plugin after %.1f s", time.Since(start).Seconds())
	})
	status := ns.plugin(t).Status.ContainerStatuses[0]
	assert.Equal(t, int32(137), status.LastTerminationState.Terminated.ExitCode)
}

// survives checks that a pod keeps its GPU while happening runs, that new pods get GPUs right after it, and that metrics contain the pod's
// name all the time.
func (ns *namespace) survives(happening func()) {
	ns.t.Helper()
	ns.apply("whole-gpu/pod.yaml")
	before := ns.ready("whole-gpu")
	has := ns.grantedTo(before, "gpu")
	ns.sees("whole-gpu", "main", has...)
	its, began := use{"whole-gpu", 1, 50}, time.Now()
	ns.works(its)
	ns.usedBy(began, &has[0], its)

	happening()
	start := time.Now()
	ns.apply("two-gpus/pod.yaml")
	gets := ns.grantedTo(ns.ready("two-gpus"), "gpus")
	ns.t.Logf("a new pod was ready after %.1f s", time.Since(start).Seconds())
	ns.sees("two-gpus", "main", gets...)
	assert.NotContains(ns.t, uuidsOf(gets...), has[0].UUID)

	after := ns.ready("whole-gpu")
	assert.Equal(ns.t, before.UID, after.UID)
	assert.Equal(ns.t, before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID)
	assert.Zero(ns.t, after.Status.ContainerStatuses[0].RestartCount)
	ns.sees("whole-gpu", "main", has...)
	ns.usedBy(time.Now(), &has[0], its)
	ns.onlyUsedBy(began, &has[0], its)
	// The kubelet can still unprepare the claim: end checks that no file of it stays.
}
