package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestWholeRecordDamaged: an unreadable record is set aside and reported. Its pod keeps running and can be deleted, and other pods are not
// affected.
func TestWholeRecordDamaged(t *testing.T) {
	ns := exclusive(t)
	plugin := ns.freshPlugin(t)
	ns.apply("whole-gpu/pod.yaml")
	ns.apply("two-gpus/pod.yaml")
	damaged, sound := ns.ready("whole-gpu"), ns.ready("two-gpus")
	has, others := ns.grantedTo(damaged, "gpu"), ns.grantedTo(sound, "gpus")
	uid := string(ns.claimOf(damaged, "gpu").UID)
	record := filepath.Join(ns.variable("PRISM_NODE_0_KUBELET_PLUGINS"), driverName, "claims", uid+".json")

	pid := ns.pid(t, plugin)
	ns.must(t, ns.onNode("kill", "-STOP", pid)...) // it may read its records at any time
	garbled, copied := ns.garble(record), record+".damaged"
	t.Cleanup(func() { _ = os.Remove(copied) }) // an administrator removes it after reading it
	ns.must(t, ns.onNode("kill", "-KILL", pid)...)
	eventually(t, startLimit, func() error { return ns.restarted(plugin) })

	message := ns.warned("CheckpointCorrupted", uid)
	t.Log(message)
	assert.Contains(t, message, uid+".json was set aside as "+uid+".json.damaged: record is damaged: ")
	eventually(t, startLimit, func() error { return ns.measures(plugin, "prism_checkpoints_corrupted_total", "1") })

	ns.apply("shared-by-containers/pod.yaml")
	gets := ns.grantedTo(ns.ready("two-containers"), "gpu")
	assert.NotContains(t, uuidsOf(append(has, others...)...), gets[0].UUID)
	ns.sees("two-containers", "first", gets...)
	ns.sees("whole-gpu", "main", has...)
	ns.sees("two-gpus", "main", others...)
	for _, before := range []*corev1.Pod{damaged, sound} {
		after := ns.pod(before.Name)
		assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID)
	}

	ns.delete("pod", "whole-gpu")
	eventually(t, startLimit, func() error {
		files, err := ns.keptFor(uid, "none")
		if err == nil && (len(files) != 1 || files[0] != copied) {
			err = fmt.Errorf("of the damaged claim the node keeps %s, not only %s", strings.Join(files, ", "), copied)
		}
		return err
	})
	kept, err := os.ReadFile(copied)
	require.NoError(t, err)
	assert.Equal(t, string(garbled), string(kept))
	require.NoError(t, ns.silence())
}

// garble truncates a file and replaces some bytes of the rest.
func (ns *namespace) garble(path string) []byte {
	ns.t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(ns.t, err)
	data = bytes.ReplaceAll(data[:len(data)*2/3], []byte("a"), []byte("\x00"))
	require.NoError(ns.t, os.WriteFile(path, data, 0o600))
	return data
}

// warned waits for an Event of the node with this reason whose message contains what, and returns the message.
func (ns *namespace) warned(reason, what string) string {
	ns.t.Helper()
	return ns.warnedWithin(startLimit, reason, what)
}

// warnedWithin is warned with another limit.
func (ns *namespace) warnedWithin(limit time.Duration, reason, what string) string {
	ns.t.Helper()
	var message string
	eventually(ns.t, limit, func() error {
		var events corev1.EventList
		err := ns.get(&events, "events", "--namespace", "default", "--field-selector", "involvedObject.name="+nodeName+",reason="+reason)
		for i := range events.Items {
			if message = events.Items[i].Message; strings.Contains(message, what) {
				return nil
			}
		}
		if err == nil {
			err = fmt.Errorf("no Event %[2]s of node %[1]s about %[3]s", nodeName, reason, what)
		}
		return err
	})
	return message
}

// measures returns an error until a metric of the plugin without labels equals this value.
func (c *cluster) measures(plugin *corev1.Pod, metric, value string) error {
	text, err := c.metricsOf(plugin)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if is, found := strings.CutPrefix(strings.TrimSpace(line), metric+" "); found {
			if is != value {
				return fmt.Errorf("%s is %s, not %s", metric, is, value)
			}
			return nil
		}
	}
	return fmt.Errorf("missing metric %s of the plugin", metric)
}

// metricsOf reads the metrics page of a plugin.
func (c *cluster) metricsOf(plugin *corev1.Pod) (string, error) {
	return c.getRaw(fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/metrics", system, plugin.Name))
}

// serves returns an error if a plugin does not serve its metrics. A plugin stops serving them on SIGTERM, even while calls of the kubelet
// still run.
func (c *cluster) serves(plugin *corev1.Pod) error {
	_, err := c.metricsOf(plugin)
	return err
}
