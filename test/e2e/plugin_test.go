package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// Names of the plugin in the chart.
const (
	system         = "prism-system"
	pluginName     = "prism-kubelet-plugin"
	pluginSelector = "app.kubernetes.io/component=kubelet-plugin"
)

// plugin waits until exactly one pod of the plugin exists and is ready, and returns it.
func (c *cluster) plugin(t *testing.T) *corev1.Pod {
	t.Helper()
	return c.pluginIn(t, system)
}

// pluginIn is plugin for a release of another namespace.
func (c *cluster) pluginIn(t *testing.T, namespace string) *corev1.Pod {
	t.Helper()
	var plugin *corev1.Pod
	eventually(t, startLimit, func() error {
		var pods corev1.PodList
		if err := c.get(&pods, "pods", "--namespace", namespace, "--selector", pluginSelector); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("found %d plugin pods, want 1", len(pods.Items))
		}
		plugin = &pods.Items[0]
		if statuses := plugin.Status.ContainerStatuses; len(statuses) != 1 || !statuses[0].Ready {
			return fmt.Errorf("plugin pod %s is not ready: %+v", plugin.Name, statuses)
		}
		return nil
	})
	return plugin
}

// startedSince waits until the plugin is ready in another container than the pod's. After a reboot of the node its pods are ready in the
// API until the kubelet reports them.
func (c *cluster) startedSince(t *testing.T, before *corev1.Pod) {
	t.Helper()
	was := before.Status.ContainerStatuses[0].ContainerID
	eventually(t, startLimit, func() error {
		if now := c.plugin(t); now.Status.ContainerStatuses[0].ContainerID == was {
			return fmt.Errorf("plugin pod %s has not started again", now.Name)
		}
		return nil
	})
}

// freshPlugin returns a plugin that never restarted, so that the kubelet restarts it immediately when it exits.
func (c *cluster) freshPlugin(t *testing.T) *corev1.Pod {
	t.Helper()
	plugin := c.plugin(t)
	if plugin.Status.ContainerStatuses[0].RestartCount == 0 {
		return plugin
	}
	c.must(t, c.kubectl("rollout", "restart", "--namespace", system, "daemonset/"+pluginName)...)
	c.rolledOut(t)
	return c.plugin(t)
}

// restarted returns an error until the container of the plugin or the exporter was restarted, once and in the same pod, and is ready.
func (c *cluster) restarted(pod *corev1.Pod) error {
	var now corev1.Pod
	if err := c.get(&now, "pod", pod.Name, "--namespace", system); err != nil {
		return err
	}
	status := now.Status.ContainerStatuses[0]
	if status.RestartCount != pod.Status.ContainerStatuses[0].RestartCount+1 || !status.Ready {
		return fmt.Errorf("%s is not back: %+v", pod.Name, status)
	}
	return nil
}

// rolledOut waits until the rollout of the plugin's DaemonSet is complete.
func (c *cluster) rolledOut(t *testing.T) {
	t.Helper()
	c.must(t, c.kubectl("rollout", "status", "--namespace", system, "daemonset/"+pluginName, "--timeout="+startLimit.String())...)
}

// pid finds the process of the plugin's container in the node's process namespace.
func (c *cluster) pid(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	id := strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
	for line := range strings.Lines(c.must(t, c.onNode("ctr", "--namespace", "k8s.io", "task", "ls")...)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == id {
			return fields[1]
		}
	}
	require.Failf(t, "no process", "found no task of containerd for container %s of pod %s", id, pod.Name)
	return ""
}

// resourceSlices returns the driver's ResourceSlices.
func (c *cluster) resourceSlices() ([]resourceapi.ResourceSlice, error) {
	var list resourceapi.ResourceSliceList
	err := c.get(&list, "resourceslices", "--field-selector", "spec.driver="+driverName)
	return list.Items, err
}

// advertised counts the published devices of a type.
func (c *cluster) advertised(deviceType string) (int, error) {
	n := 0
	slices, err := c.resourceSlices()
	for i := range slices {
		for _, device := range slices[i].Spec.Devices {
			if value := device.Attributes["type"].StringValue; value != nil && *value == deviceType {
				n++
			}
		}
	}
	return n, err
}

// advertises waits until this number of whole GPUs is published.
func (c *cluster) advertises(t *testing.T, gpus int, within time.Duration) {
	t.Helper()
	eventually(t, within, func() error {
		whole, err := c.advertised("gpu")
		if err != nil {
			return err
		}
		if whole != gpus {
			return fmt.Errorf("%d whole GPUs are published, not %d", whole, gpus)
		}
		return nil
	})
}
