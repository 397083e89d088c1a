package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// TestMIGKubeletRestarts: a pod keeps its MIG device, and other pods get MIG devices on the same GPU.
func TestMIGKubeletRestarts(t *testing.T) {
	ns := migExclusive(t)
	ns.createMIG("stays", "2g.20gb", 7)
	has := ns.migDevice("stays")
	before := ns.pod("stays")

	ns.must(t, ns.localcluster("restart", nodeName, "kubelet")...)
	start := time.Now()
	ns.createMIG("comes", "2g.20gb", 7)
	gets := ns.migDevice("comes")
	t.Logf("a new pod had its MIG device %.1f s after the kubelet's restart", time.Since(start).Seconds())
	assert.NotEqual(t, has.Placement, gets.Placement)

	after := ns.ready("stays")
	assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID)
	assert.Equal(t, has, ns.migDevice("stays"))
	require.NoError(t, ns.silence())
}

// TestMIGPluginKilledInCreation: the next plugin removes or uses the MIG devices that the killed plugin began to create, for a pod that is
// deleted meanwhile and for one that stays.
func TestMIGPluginKilledInCreation(t *testing.T) {
	ns := migExclusive(t)
	plugin := ns.freshPlugin(t)
	ns.createMIG("before", "2g.20gb", 7)
	has := ns.migDevice("before")

	ns.must(t, ns.simgpu("inject", "mig-latency", "--create-gi", "30s")...)
	fast := ns.simgpu("inject", "mig-latency")
	t.Cleanup(func() { ns.must(t, fast...) })
	// Create the pods at once: the calls that create instances have a deadline.
	pid, pods := ns.pid(t, plugin), []workload{ns.onGPU("stays", "1g.10gb", 7)}
	for index := firstMIG; index < nodeGPUs; index++ {
		pods = append(pods, ns.onGPU(fmt.Sprintf("goes-%d", index), "1g.10gb", index))
	}
	ns.create(pods...)
	eventually(t, startLimit, func() error { return ns.halfMade(6) })
	eventually(t, startLimit, func() error { return ns.halfMade(7) })
	for _, pod := range []string{"goes-6", "goes-7", "stays"} {
		eventually(t, startLimit, func() error { return ns.assigned(pod) })
	}
	ns.must(t, ns.onNode("kill", "-KILL", pid)...)
	ns.must(t, fast...)
	require.NoError(t, ns.halfMade(6), "a crash leaves a GPU instance without a compute instance")
	start := time.Now()
	eventually(t, startLimit, func() error { return ns.restarted(plugin) })
	t.Logf("the kubelet had a new plugin after %.1f s", time.Since(start).Seconds())

	ns.delete("pod", "goes-6", "goes-7")
	eventually(t, startLimit, func() error { return ns.instances(6, 0) })
	// The kubelet asks again only after a minute or more. After its start it asks at once.
	ns.must(t, ns.localcluster("restart", nodeName, "kubelet")...)
	gets := ns.migDevice("stays")
	t.Logf("the pod that stayed had its MIG device after %.1f s", time.Since(start).Seconds())
	assert.NotEqual(t, has.UUID, gets.UUID)
	require.NoError(t, ns.instances(7, 2))
	ns.sees("before", "main", has)
}

// graceTime is how long a stopping plugin waits for its calls.
const graceTime = 8 * time.Second

// TestMIGPluginDeletedInCreation: a plugin that is stopped while it creates one MIG device and destroys another completes both, if that
// takes no longer than graceTime.
func TestMIGPluginDeletedInCreation(t *testing.T) {
	ns := migExclusive(t)
	before, err := ns.kept()
	require.NoError(t, err)
	old := ns.watch(ns.plugin(t))
	calls := ns.calls()
	ns.createMIG("goes", "1g.10gb", 6)
	ns.migDevice("goes")

	answer := sync.OnceFunc(func() { ns.must(t, ns.simgpu("inject", "clear")...) })
	t.Cleanup(answer)
	for _, call := range []string{"nvmlGpuInstanceDestroy", "nvmlGpuInstanceCreateComputeInstance*"} {
		ns.must(t, ns.simgpu("inject", "hang", "--call", call)...)
	}
	ns.do("delete", "pod", "goes", "--wait=false")
	eventually(t, startLimit, func() error { return ns.halfMade(6) })
	ns.createMIG("comes", "1g.10gb", 7)
	eventually(t, startLimit, func() error { return ns.halfMade(7) })
	require.NoError(t, ns.serves(old.pod))
	stopped := time.Now()
	ns.must(t, ns.kubectl("delete", "pod", old.pod.Name, "--namespace", system, "--wait=false")...)
	eventually(t, startLimit, func() error {
		if ns.serves(old.pod) == nil {
			return errors.New("the plugin has not received SIGTERM")
		}
		return nil
	})
	ns.leads(t) // a plugin that did not wait for its calls would have aborted them by now
	require.NoError(t, errors.Join(ns.halfMade(6), ns.halfMade(7)))
	answer()
	hung, start := time.Since(stopped), time.Now()
	ns.migDevice("comes")
	t.Logf("the pod had its MIG device %.1f s after the plugin was deleted", time.Since(start).Seconds())
	eventually(t, startLimit, func() error { return ns.gone(old.pod) })
	ns.plugin(t)
	t.Logf("its calls hung for up to %.1f s after the plugin was stopped", hung.Seconds())
	ns.delete("pod", "goes", "comes", "--ignore-not-found")
	eventually(t, startLimit, func() error { return ns.asBefore(before) })
	if hung >= graceTime { // the calls may have been aborted and repeated
		return
	}
	assert.Len(t, old.prepared(ns.name), 2, "claims that the old plugin prepared")
	lost, _ := calls.since()
	assert.Empty(t, lost, "calls that the kubelet made and that were not answered")
	require.NoError(t, ns.silence())
}

// leads waits until no plugin of the node leads: a stopping plugin gives up its lease first.
func (c *cluster) leads(t *testing.T) {
	t.Helper()
	locks, err := checkpoint.OpenLocks(filepath.Join(c.variable("PRISM_NODE_0_KUBELET_PLUGINS"), driverName))
	require.NoError(t, err)
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	release, err := locks.Lead(ctx)
	require.NoError(t, err)
	release()
}

// halfMade returns an error until a GPU has an instance that cannot run anything yet.
func (c *cluster) halfMade(index int) error {
	gpus, err := c.partitions()
	if err != nil {
		return err
	}
	for _, instance := range gpus[index].Instances {
		if instance.ComputeInstance == nil {
			return nil
		}
	}
	return fmt.Errorf("every instance of GPU %d has compute instances: %+v", index, gpus[index].Instances)
}
