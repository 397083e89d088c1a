package kube_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

const configLabel = "nvidia.com/device-plugin.config"

// Heartbeats, images, other labels, annotations and conditions of the Node are not reported.
func TestNodeWatch_Changes_OnlyNamedPartsReported(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", ResourceVersion: "1"}}
	client := fake.NewClientset(node.DeepCopy())
	reported := make(chan kube.NodeParts, 64)
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() {
		w := kube.NodeWatch{Client: client, NodeName: "n0", Label: configLabel, Domains: []string{"heal.x.dev"}, Conditions: []string{"GpuXidError"}}
		returned <- w.Run(ctx, func(now kube.NodeParts) { reported <- now })
	}()
	expect := func(want kube.NodeParts) {
		t.Helper()
		select {
		case got := <-reported:
			assert.Equal(t, want, got)
		case <-time.After(time.Minute):
			require.Fail(t, "not reported")
		}
	}
	expect(kube.NodeParts{})
	require.Eventually(t, func() bool { return watches(client) == 1 }, time.Minute, time.Millisecond)

	version := 1
	update := func(change func()) {
		t.Helper()
		change()
		version++
		node.ResourceVersion = string(rune('0' + version))
		_, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	update(func() {
		node.Labels = map[string]string{"other": "label"}
		node.Annotations = map[string]string{"other/a": "b", "heal.x.dev": "no domain", "release.x.dev/gpu-1": "of another domain"}
		node.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	})
	want := kube.NodeParts{Label: "a"}
	update(func() { node.Labels[configLabel] = "a" })
	expect(want)
	want.Annotations = map[string]string{"heal.x.dev/gpu-1": "now"}
	update(func() { node.Annotations["heal.x.dev/gpu-1"] = "now" })
	expect(want)
	want.Conditions = []kube.NodeCondition{{Type: "GpuXidError", Status: "True", Reason: "XID", Message: "79"}}
	update(func() {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: "GpuXidError", Status: "True", Reason: "XID", Message: "79"})
	})
	expect(want)
	update(func() { node.Status.Conditions[1].LastHeartbeatTime = metav1.NewTime(time.Now().Add(time.Minute)) })
	want.Conditions = []kube.NodeCondition{{Type: "GpuXidError", Status: "True", Reason: "XID", Message: strings.Repeat("x", 32<<10)}}
	update(func() { node.Status.Conditions[1].Message = strings.Repeat("x", 1<<20) })
	expect(want)
	require.NoError(t, client.CoreV1().Nodes().Delete(ctx, "n0", metav1.DeleteOptions{}))
	expect(kube.NodeParts{})
	assert.Empty(t, reported, "no other change is reported")
	cancel()
	require.NoError(t, <-returned)
	requireOnly(t, client, "nodes", "n0")
}
