package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/prism-gpu/prism/pkg/controller/labels"
)

// TestNodeLabels_SwitchedOnAndOff_ForeignLabelKept: the controller labels the node as gpu-feature-discovery would, except for a label of
// another manager, and may write nothing else of it. After labels were switched off it removes its own, and its right to write them.
func TestNodeLabels_SwitchedOnAndOff_ForeignLabelKept(t *testing.T) {
	ns := exclusive(t)
	const foreign = "nvidia.com/gpu.family"
	ns.must(t, ns.kubectl("label", "node", nodeName, foreign+"=mine", "--field-manager=admin")...)
	t.Cleanup(func() { ns.must(t, ns.kubectl("label", "node", nodeName, foreign+"-")...) })
	ns.rollBackAtTheEnd(t)
	ns.setNodeLabels(t, "enabled=true", "present=true")

	want := map[string]string{
		"nvidia.com/gpu.count": strconv.Itoa(nodeGPUs), "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559", foreign: "mine",
		"nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0", "nvidia.com/mig.capable": "true", "nvidia.com/gpu.present": "true",
	}
	maps.Copy(want, ns.versionLabels(t))
	eventually(t, startLimit, func() error {
		got, err := ns.nodeLabels()
		if err == nil && !maps.Equal(want, got) {
			err = fmt.Errorf("the labels are %v, not %v", got, want)
		}
		return err
	})
	page := ns.must(t, ns.kubectl("get", "--raw", "/api/v1/namespaces/"+system+"/pods/"+ns.leader(t, "")+":8080/proxy/metrics")...)
	assert.Contains(t, page, "\nprism_controller_node_label_conflicts 1\n")

	const onlyLabels = "the controller may change only labels of Nodes"
	for change, denied := range map[string]string{
		`metadata: {name: n0, labels: {nvidia.com/gpu.count: "8"}}`:                              "",
		`metadata: {name: n0, labels: {nvidia.com/gpu.deploy.driver: "true"}}`:                   "the controller may not change label 'nvidia.com/gpu.deploy.driver' of Nodes",
		`metadata: {name: n0, annotations: {a: b}}`:                                              onlyLabels,
		`metadata: {name: n0, labels: {nvidia.com/gpu.count: "8"}}, spec: {unschedulable: true}`: onlyLabels,
	} {
		err := ns.applyAsController(change)
		if denied == "" {
			assert.NoError(t, err, change)
			continue
		}
		assert.ErrorContains(t, err, denied, change)
	}
	require.NoError(t, ns.silence())

	ns.setNodeLabels(t, "enabled=false")
	eventually(t, startLimit, func() error {
		got, err := ns.nodeLabels()
		if err == nil && !maps.Equal(map[string]string{foreign: "mine"}, got) {
			err = fmt.Errorf("the labels are %v", got)
		}
		return err
	})
	eventually(t, startLimit, func() error {
		left, err := ns.run("", ns.kubectl("get", "clusterrolebinding", labels.BindingName(controllerName), "--ignore-not-found", "--output=name")...)
		if err == nil && left != "" {
			err = fmt.Errorf("%s still exists", strings.TrimSpace(left))
		}
		return err
	})
	assert.ErrorContains(t, ns.applyAsController(`metadata: {name: n0, labels: {nvidia.com/gpu.count: "8"}}`), "forbidden")
	require.NoError(t, ns.silence())
}

// applyAsController returns the API server's answer to a dry run of a server-side apply of the node by the controller's account.
func (c *cluster) applyAsController(node string) error {
	_, err := c.run("{apiVersion: v1, kind: Node, "+node+"}", c.kubectl("--as=system:serviceaccount:"+system+":"+controllerName,
		"apply", "--server-side", "--dry-run=server", "--field-manager=e2e", "--filename=-")...)
	return err
}

// rollBackAtTheEnd restores the values of the release after the test.
func (c *cluster) rollBackAtTheEnd(t *testing.T) {
	t.Helper()
	var history []struct {
		Revision int `json:"revision"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.must(t, c.helmLine("history", "prism", "--max", "1", "--output", "json")...)), &history))
	require.Len(t, history, 1)
	t.Cleanup(func() { c.helm(t, "rollback", "prism", strconv.Itoa(history[0].Revision)) })
}

// setNodeLabels changes values of nodeLabels.
func (c *cluster) setNodeLabels(t *testing.T, values ...string) {
	t.Helper()
	line := []string{"upgrade", "prism", filepath.Join(c.root, "deployments/helm/prism"), "--reuse-values"}
	for _, value := range values {
		line = append(line, "--set", "nodeLabels."+value)
	}
	c.helm(t, line...)
}

// nodeLabels returns the labels of the node that the controller may set.
func (c *cluster) nodeLabels() (map[string]string, error) {
	var node corev1.Node
	if err := c.get(&node, "node", nodeName); err != nil {
		return nil, err
	}
	maps.DeleteFunc(node.Labels, func(key, _ string) bool { return !slices.Contains(labels.Keys(), key) })
	return node.Labels, nil
}

// versionLabels are the labels about the driver, as its version is published.
func (c *cluster) versionLabels(t *testing.T) map[string]string {
	t.Helper()
	published, err := c.resourceSlices()
	require.NoError(t, err)
	for i := range published {
		for _, device := range published[i].Spec.Devices {
			driver, cuda := device.Attributes["driverVersion"].VersionValue, device.Attributes["cudaDriverVersion"].VersionValue
			if driver == nil || cuda == nil {
				continue
			}
			drivers, cudas := strings.Split(*driver, "."), strings.Split(*cuda, ".")
			return map[string]string{
				"nvidia.com/cuda.driver-version.major": drivers[0], "nvidia.com/cuda.driver-version.minor": drivers[1],
				"nvidia.com/cuda.runtime-version.major": cudas[0], "nvidia.com/cuda.runtime-version.minor": cudas[1],
				"nvidia.com/cuda.runtime-version.full": cudas[0] + "." + cudas[1],
			}
		}
	}
	require.Fail(t, "no device with versions")
	return nil
}
