package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestWholeDriverUnloaded: without a driver the node advertises no device and measures nothing. When the driver is back, the same process
// of the plugin goes on, and metrics again contain the name of a pod that had its GPU before.
func TestWholeDriverUnloaded(t *testing.T) {
	ns := exclusive(t)
	before := ns.plugin(t)
	its, began := use{"stays", 1, 50}, time.Now()
	ns.create(workload{name: its.pod, ref: "gpu", request: request{class: gpuClass}})
	has := &ns.grantedTo(ns.ready(its.pod), "gpu")[0]
	ns.works(its)
	ns.usedBy(began, has, its)
	load := ns.simgpu("inject", "driver-load")
	ns.must(t, ns.simgpu("inject", "driver-unload")...)
	t.Cleanup(func() { ns.advertises(t, ns.gpus.size, startLimit) })
	loaded := false
	t.Cleanup(func() {
		if !loaded {
			ns.must(t, load...)
		}
	})
	start := time.Now()
	ns.advertises(t, 0, startLimit)
	t.Logf("the node advertised nothing %.1f s after the driver was unloaded", time.Since(start).Seconds())
	ns.isNotMeasured(has)
	ns.apply("whole-gpu/pod.yaml")
	assert.Contains(t, ns.event("whole-gpu", "FailedScheduling", startLimit), "cannot allocate all claims")

	ns.must(t, load...)
	loaded = true
	start = time.Now()
	ns.advertises(t, ns.gpus.size, startLimit)
	t.Logf("the GPUs were published %.1f s after the driver was back", time.Since(start).Seconds())
	ns.sees("whole-gpu", "main", ns.grantedTo(ns.ready("whole-gpu"), "gpu")...)
	reloaded := time.Now()
	ns.works(its)
	ns.usedBy(reloaded, has, its)
	ns.onlyUsedBy(began, has, its)
	ns.countsAsDriver(has)
	after := ns.plugin(t)
	assert.Equal(t, before.UID, after.UID)
	assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID)
}

// TestWholeDriverUpgraded: a process cannot load another version of the library, so the plugin and the exporter exit with 0 and are
// restarted.
func TestWholeDriverUpgraded(t *testing.T) {
	ns := exclusive(t)
	before, exporter := ns.freshPlugin(t), ns.freshExporter(t)
	h, err := ns.hardware()
	require.NoError(t, err)
	version := "580.105.08"
	if h.Driver.Version == version {
		version = "580.95.05"
	}
	ns.must(t, ns.simgpu("build", "--driver", version)...)

	ns.must(t, ns.simgpu("inject", "driver-upgrade", version)...)
	start := time.Now()
	eventually(t, startLimit, func() error { return ns.publishes(version) }) // by a restarted container
	t.Logf("driver %s was published %.1f s after it took the place of %s", version, time.Since(start).Seconds(), h.Driver.Version)
	ns.advertises(t, ns.gpus.size, startLimit)

	for program, pod := range map[string]*corev1.Pod{"plugin": before, "exporter": exporter} {
		eventually(t, startLimit, func() error { return ns.restarted(pod) })
		var after corev1.Pod
		require.NoError(t, ns.get(&after, "pod", pod.Name, "--namespace", system))
		last := after.Status.ContainerStatuses[0].LastTerminationState
		require.NotNil(t, last.Terminated, "%s: %+v", program, last)
		require.Equal(t, int32(0), last.Terminated.ExitCode, "%s: %+v", program, last)
	}

	ns.apply("whole-gpu/pod.yaml")
	grants := ns.grantedTo(ns.ready("whole-gpu"), "gpu")
	require.Equal(t, version, grants[0].DriverVersion)
	ns.sees("whole-gpu", "main", grants...)
}

// publishes returns an error until every device has this driver version.
func (c *cluster) publishes(version string) error {
	slices, err := c.resourceSlices()
	if err != nil {
		return err
	}
	want := semver(version)
	devices := 0
	for i := range slices {
		for _, device := range slices[i].Spec.Devices {
			devices++
			if value := device.Attributes["driverVersion"].VersionValue; value == nil || *value != want {
				return fmt.Errorf("device %s has not driver %s", device.Name, want)
			}
		}
	}
	if devices == 0 {
		return fmt.Errorf("no device with driver %s is published", want)
	}
	return nil
}

// semver returns a driver version without leading zeros, as attributes require.
func semver(version string) string {
	parts := strings.Split(version, ".")
	for i, part := range parts {
		if n, err := strconv.Atoi(part); err == nil {
			parts[i] = strconv.Itoa(n)
		}
	}
	return strings.Join(parts, ".")
}
