package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestProfile_ByHand_TwoNodes_PodsCoverWindow: one command records the processes of 20 pods on two nodes, and all recordings cover its
// window, by the answers and by the reports. The test runs on a cluster with NODES=2.
func TestProfile_ByHand_TwoNodes_PodsCoverWindow(t *testing.T) {
	c := open(t)
	require.GreaterOrEqual(t, c.nodes(t), 2, "boot the cluster with NODES=2, as hack/e2e.sh does for this test")
	c.hasProfiler(t)
	ns := withDiagnostics(exclusive(t))
	eventually(t, toolLimit, func() error { return c.toolProvenIn(c.variable("PRISM_NODE_1_ROOT")) })
	const each = 10
	nodes := []string{nodeName, "n1"}
	for _, node := range nodes {
		claim, _ := profiledObjects(t, node, `{`+byHand+`}`)
		require.NoError(t, ns.createObject(claim))
		for i := range each {
			_, pod := profiledObjects(t, node, `{`+byHand+`}`, inPrograms("main", "python3", "-c", phases))
			pod.Name = fmt.Sprintf("%s-%d", node, i)
			pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
			require.NoError(t, ns.createObject(pod))
		}
	}
	for _, node := range nodes {
		ns.waiting(node, each)
	}
	out := ns.command("start", "--all", "--duration", "2s", "--yes")
	assert.Contains(t, out, fmt.Sprintf("%[1]d of %[1]d recorded the whole window", len(nodes)*each))
	var began, ended []time.Time
	for _, node := range nodes {
		ns.reportsOf(node, each, "Ready")
		for _, s := range ns.waiting(node, each) {
			require.NotNil(t, s.Status.LastCommand)
			began, ended = append(began, s.Status.LastCommand.Begun.Time), append(ended, s.Status.LastCommand.Ended.Time)
		}
	}
	window := slices.MinFunc(ended, time.Time.Compare).Sub(slices.MaxFunc(began, time.Time.Compare))
	assert.GreaterOrEqual(t, window, 2*time.Second, "from the last begin to the first end")
	ns.delete("pods", "--all")
}

// toolProvenIn is toolProven for the node with that root directory.
func (c *cluster) toolProvenIn(root string) error {
	manifests, err := filepath.Glob(filepath.Join(root, "var/lib", driverName, "tools", "[0-9]*-*", "manifest.json"))
	if err == nil && len(manifests) != 2 {
		err = errors.New("a version of the profiler is not installed on the node")
	}
	return err
}
