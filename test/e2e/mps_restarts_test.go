package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// holding starts a pod with a share, whose process holds memory, and returns the GPU, the process and the GPU's daemon.
func (ns *namespace) holding(pod string, index int) (uuid string, memory *gpuClient, daemon gpu.MPSDaemon) {
	ns.t.Helper()
	ns.create(mpsPod(pod, index, "4Gi"))
	uuid = ns.grantedTo(ns.ready(pod), "share")[0].UUID
	memory = ns.holdsMemory(pod, "main", 1000)
	return uuid, memory, ns.controlDaemon(uuid)
}

// joins checks that another pod gets a share of the same GPU, with its limit.
func (ns *namespace) joins(pod string, index int) {
	ns.t.Helper()
	ns.create(mpsPod(pod, index, "2Gi"))
	ns.mpsShare(pod, "share", 2048)
}

// TestMPSWorkerKilled_DaemonsLive: the process that serves the plugin is killed; the next one keeps the daemons, and no client notices.
func TestMPSWorkerKilled_DaemonsLive(t *testing.T) {
	ns := mpsInParallel(t)
	pod := ns.mpsService(t)
	_, memory, daemon := ns.holding("holds", sharedGPUs[0])
	before := ns.worker()
	ns.signal("KILL", before)
	ns.joins("joins", sharedGPUs[0])
	require.NotEqual(t, before, ns.worker())
	ns.stays(daemon)
	assert.Equal(t, "allocated", memory.more())
	after := ns.mpsService(t)
	assert.Equal(t, pod.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID)
	require.NoError(t, ns.silence())
}

// TestMPSServiceDeleted_GPUProhibited: without the service clients end, shares are tainted, and nothing can use the GPU. When the service
// is back, programs in the same containers become clients again.
func TestMPSServiceDeleted_GPUProhibited(t *testing.T) {
	ns := mpsInParallel(t)
	uuid, memory, daemon := ns.holding("holds", sharedGPUs[0])
	ns.withoutMPSService(func() {
		notices(t, "the service is gone", func() error {
			return errors.Join(ns.mpsTainted(true), ns.computeMode(uuid, modeProhibited))
		})
		t.Log(ns.warned("MPSUnavailable", "mps.enabled"))
		assert.Contains(t, memory.more(), "cuMemAlloc_v2: 806")
		assert.Contains(t, memory.starts(1), "cuCtxCreate_v2: 46", "nothing runs without MPS on a GPU with shares")
		ns.create(mpsPod("waits", sharedGPUs[0], "1Gi"))
		ns.waits("waits")
	})
	again := ns.controlDaemon(uuid)
	assert.NotEqual(t, daemon.PID, again.PID)
	notices(t, "the service is back", func() error {
		return errors.Join(ns.mpsTainted(false), ns.computeMode(uuid, modeExclusiveProcess))
	})
	assert.Contains(t, memory.starts(1000), "holding", "the container sees the directories of the new daemon")
	ns.limitedTo("holds", "main", 4096)
	ns.mpsShare("waits", "share", 1024)
	require.NoError(t, ns.silence())
}

// TestMPSDaemonKilled_Restarted: a control daemon that exits is restarted with its limits, and reported.
func TestMPSDaemonKilled_Restarted(t *testing.T) {
	ns, index := mpsOnOneGPU(t)
	uuid, memory, daemon := ns.holding("holds", index)
	ns.signal("KILL", daemon.PID)
	notices(t, "the control daemon died", func() error {
		if again := ns.controlDaemon(uuid); again.PID == daemon.PID {
			return fmt.Errorf("it is still reported with pid %d", again.PID)
		}
		return ns.computeMode(uuid, modeExclusiveProcess)
	})
	t.Log(ns.warned("MPSDaemonRestarted", uuid+" was started again (it was killed by signal 9 (killed)"))
	assert.Contains(t, memory.more(), "cuMemAlloc_v2: 806", "the server of a daemon that died is ended")
	assert.Contains(t, memory.starts(1000), "holding")
	ns.limitedTo("holds", "main", 4096)
	ns.joins("joins", index)
	require.NoError(t, ns.silence())
}

// TestMPSServerHangs_Killed: a server that does not respond is killed when the last share ends.
func TestMPSServerHangs_Killed(t *testing.T) {
	ns, index := mpsOnOneGPU(t)
	uuid, _, daemon := ns.holding("holds", index)
	require.Len(t, daemon.Servers, 1)
	ns.signal("STOP", daemon.Servers[0])
	ns.delete("pod", "holds")
	ns.released(uuid)
	_, err := ns.run("", ns.onNode("test", "-e", fmt.Sprintf("/proc/%d", daemon.Servers[0]))...)
	assert.Error(t, err, "the server is gone")
	ns.joins("joins", index)
	require.NoError(t, ns.silence())
}

// TestMPSPluginUpgraded_DaemonsLive: a rolling update of the plugin does not affect daemons and clients.
func TestMPSPluginUpgraded_DaemonsLive(t *testing.T) {
	ns := mpsExclusive(t)
	_, memory, daemon := ns.holding("holds", sharedGPUs[0])
	old := ns.plugin(t)
	ns.must(t, ns.kubectl("rollout", "restart", "--namespace", system, "daemonset/"+pluginName)...)
	ns.rolledOut(t)
	eventually(t, startLimit, func() error { return ns.gone(old) })
	ns.plugin(t)
	ns.stays(daemon)
	assert.Equal(t, "allocated", memory.more())
	ns.joins("joins", sharedGPUs[0])
	ns.stays(daemon)
	require.NoError(t, ns.silence())
}

// TestMPSDriverReplaced_DaemonRenewed: when the driver was replaced, the service renews its daemon as soon as no client uses it.
func TestMPSDriverReplaced_DaemonRenewed(t *testing.T) {
	ns := mpsExclusive(t)
	h, err := ns.hardware()
	require.NoError(t, err)
	version := "580.105.08"
	if h.Driver.Version == version {
		version = "580.95.05"
	}
	uuid, memory, daemon := ns.holding("holds", sharedGPUs[0])
	ns.replaceDriver(version)
	memory.exits()
	notices(t, "the control daemon is outdated and without clients", func() error {
		if again := ns.controlDaemon(uuid); again.PID == daemon.PID || again.Outdated {
			return fmt.Errorf("the daemon is not renewed: %+v", again)
		}
		return ns.computeMode(uuid, modeExclusiveProcess)
	})
	ns.joins("joins", sharedGPUs[0])
}

// replaceDriver replaces the driver of the node, and waits until its devices are published and the plugin, which exits because of that, is
// ready.
func (ns *namespace) replaceDriver(version string) {
	ns.t.Helper()
	before := ns.freshPlugin(ns.t)
	ns.must(ns.t, ns.simgpu("build", "--driver", version)...)
	ns.must(ns.t, ns.simgpu("inject", "driver-upgrade", version)...)
	eventually(ns.t, startLimit, func() error { return ns.publishes(version) })
	eventually(ns.t, startLimit, func() error { return ns.restarted(before) })
	ns.advertises(ns.t, ns.gpus.size, startLimit)
}

// TestMPSOldDriver: MPS of driver 550, with the simulated control daemon and with NVIDIA's own.
func TestMPSOldDriver(t *testing.T) {
	ns := mpsExclusive(t)
	h, err := ns.hardware()
	require.NoError(t, err)
	t.Cleanup(func() {
		ns.replaceDriver(h.Driver.Version)
		ns.advertisesMIG(t, startLimit)
	})
	ns.replaceDriver(debianDriver)
	t.Run("SingleUserReported", oldDriverSingleUser)
	t.Run("NVIDIAControlDaemon", oldDriverNVIDIA)
}

// oldDriverSingleUser checks that MPS of an older driver serves one user at a time, and that the plugin reports it.
func oldDriverSingleUser(t *testing.T) {
	ns := mpsExclusive(t)
	uuid, memory, daemon := ns.holding("holds", sharedGPUs[0])
	assert.False(t, daemon.MultiUser)
	t.Log(ns.warnedWithin(startLimit, "MPSSingleUser", uuid))
	assert.Equal(t, "allocated", memory.more())
	ns.joins("same-user", sharedGPUs[0])
	other := mpsPod("other-user", sharedGPUs[0], "2Gi")
	other.user = 1000
	ns.create(other)
	ns.ready("other-user")
	waits := &gpuClient{ns, "other-user", "main"}
	waits.begins(100)
	eventually(t, startLimit, func() error { return ns.controlLogged(daemon, "from user 1000: Server is not ready") })
	assert.Equal(t, "allocated", memory.more(), "the client of the first user, while the other one is known to the daemon")
	assert.Empty(t, waits.printed(), "a client of another user runs")
	memory.exits()
	eventually(t, startLimit, func() error {
		if printed := waits.printed(); !strings.Contains(printed, "holding") {
			return fmt.Errorf("the client of another user printed %q", printed)
		}
		return nil
	})
	ns.delete("pod", "holds", "same-user", "other-user")
	ns.released(uuid)
	require.NoError(t, ns.silence())
}
