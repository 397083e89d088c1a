package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// configDir is the folder on the node for the configuration of TestConfigByFile.
const configDir = "/run/prism-e2e"

// TestConfigByFile: the test replaces the file like the kubelet for a mounted ConfigMap. The new text applies in the same way as in a
// ConfigMap that the plugin reads itself. New devices need no free GPU. An invalid text leaves the last valid one in effect.
func TestConfigByFile(t *testing.T) {
	ns := migExclusive(t)
	t.Cleanup(func() { ns.must(t, ns.onNode("rm", "-rf", configDir)...) })
	ns.publishFile(t, 1, "[{select: {indices: [7]}, modes: [mig], mig: {profiles: [3g.40gb]}}]")
	ns.must(t, ns.onNode("ln", "-s", "..data/node.yaml", configDir+"/node.yaml")...)
	ns.readsFile(t)
	plugin := ns.plugin(t)
	eventually(t, startLimit, func() error { return errors.Join(ns.migDevicesOf(6, 0), ns.migDevicesOf(7, 2)) })
	ns.createMIG("held", "3g.40gb", 7)
	held := ns.migDevice("held")

	ns.publishFile(t, 2, "[{select: {indices: [6, 7]}, modes: [mig], mig: {profiles: [3g.40gb]}}]")
	eventually(t, startLimit, func() error { return errors.Join(ns.migDevicesOf(6, 2), ns.migDevicesOf(7, 2)) })
	ns.publishFile(t, 3, "[{modes: [mic]}]")
	message := ns.warned("NodeConfigInvalid", "mic")
	t.Log(message)
	assert.Contains(t, message, "The configuration that was read before stays: reading the node configuration in file /host"+configDir+"/node.yaml: ")
	eventually(t, startLimit, func() error { return ns.measures(plugin, `prism_node_config_problem{reason="NodeConfigInvalid"}`, "1") })
	require.NoError(t, errors.Join(ns.migDevicesOf(6, 2), ns.migDevicesOf(7, 2)))
	ns.publishFile(t, 4, "[{select: {indices: [7]}, modes: [mig]}]")
	eventually(t, startLimit, func() error { return errors.Join(ns.migDevicesOf(6, 0), ns.migDevicesOf(7, placements)) })
	assert.NoError(t, ns.measures(plugin, `prism_node_config_problem{reason="NodeConfigInvalid"}`, "0"))
	ns.sees("held", "main", held)
	assert.Equal(t, plugin.UID, ns.plugin(t).UID, "no plugin was restarted")
	ns.delete("pod", "held")
	require.NoError(t, ns.silence())
}

// readsFile makes the plugin read its configuration from the file, until the end of the test.
func (c *cluster) readsFile(t *testing.T) {
	t.Helper()
	values := map[string]any{}
	line := []string{filepath.Join(c.variable("PATH"), "helm"), "--kubeconfig", c.variable("KUBECONFIG"), "--namespace", system}
	require.NoError(t, json.Unmarshal([]byte(c.must(t, append(line, "get", "values", "prism", "--output", "json")...)), &values))
	delete(values, "config")
	values["kubeletPlugin"] = map[string]any{"extraEnv": []map[string]string{
		{"name": "PRISM_NODE_CONFIG", "value": "/host" + configDir + "/node.yaml"},
	}}
	text, err := json.Marshal(values)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	c.helm(t, "upgrade", "prism", filepath.Join(c.root, "deployments/helm/prism"), "--reset-values", "--values", file)
	t.Cleanup(func() {
		c.helm(t, "rollback", "prism")
		c.plugin(t)
		c.advertisesMIG(t, startLimit)
		c.advertises(t, c.gpus.size, startLimit)
	})
}

// publishFile writes a version of the node's configuration like the kubelet for a ConfigMap: into a new folder, to which it then changes a
// link.
func (c *cluster) publishFile(t *testing.T, version int, gpus string) {
	t.Helper()
	script := strings.NewReplacer("DIR", configDir, "OLD", fmt.Sprint(version-1), "NEW", fmt.Sprint(version), "GPUS", gpus).Replace(`set -e
		mkdir -p DIR/..NEW
		cat >DIR/..NEW/node.yaml <<'end'
apiVersion: gpu.prism.dev/v1alpha1
kind: NodeConfig
gpus: GPUS
end
		ln -s ..NEW DIR/..data_tmp
		mv -T DIR/..data_tmp DIR/..data
		rm -rf DIR/..OLD`)
	c.must(t, c.onNode("sh", "-c", script)...)
}
