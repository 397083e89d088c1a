package kube_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

const configLabel = "nvidia.com/device-plugin.config"

// Other labels and heartbeats of the Node and metadata of the ConfigMap are not reported.
func TestConfigWatch_Changes_OnlyLabelAndDataReported(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", ResourceVersion: "1"}}
	nodes := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "prism", Name: "nodes", ResourceVersion: "1"}, Data: map[string]string{"a": "x"}}
	client := fake.NewClientset(node.DeepCopy(), nodes.DeepCopy())
	reported := make(chan bool, 64)
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() {
		w := kube.ConfigWatch{Client: client, NodeName: "n0", Label: configLabel, Namespace: "prism", Map: "nodes"}
		returned <- w.Run(ctx, func() { reported <- true })
	}()
	expect := func(what string, change func() error) {
		require.NoError(t, change(), what)
		select {
		case <-reported:
		case <-time.After(time.Minute):
			t.Fatal("not reported: " + what)
		}
	}
	expect("the first of Node and ConfigMap", func() error { return nil })
	expect("the second of Node and ConfigMap", func() error { return nil })
	require.Eventually(t, func() bool { return watches(client) == 2 }, time.Minute, time.Millisecond)

	update := func(version string, change func()) func() error {
		return func() error {
			change()
			node.ResourceVersion, nodes.ResourceVersion = version, version
			if _, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
				return err
			}
			_, err := client.CoreV1().ConfigMaps("prism").Update(ctx, nodes, metav1.UpdateOptions{})
			return err
		}
	}
	require.NoError(t, update("2", func() {
		node.Labels, nodes.Labels = map[string]string{"other": "label"}, map[string]string{"other": "label"}
	})())
	expect("the label", update("3", func() { node.Labels[configLabel] = "a" }))
	expect("the content", update("4", func() { nodes.Data["a"] = "y" }))
	expect("no label", update("5", func() { node.Labels = nil }))
	expect("no ConfigMap", func() error { return client.CoreV1().ConfigMaps("prism").Delete(ctx, "nodes", metav1.DeleteOptions{}) })
	assert.Empty(t, reported, "no other change is reported")
	cancel()
	require.NoError(t, <-returned)

	for _, action := range client.Actions() {
		var only fields.Selector
		switch action := action.(type) {
		case clienttesting.ListAction:
			only = action.GetListRestrictions().Fields
		case clienttesting.WatchAction:
			only = action.GetWatchRestrictions().Fields
		default:
			continue
		}
		name := map[string]string{"nodes": "n0", "configmaps": "nodes"}[action.GetResource().Resource]
		assert.Equal(t, "metadata.name="+name, only.String(), "no other object is read")
	}
}

// watches counts the started watches.
func watches(client *fake.Clientset) (n int) {
	for _, action := range client.Actions() {
		if action.GetVerb() == "watch" {
			n++
		}
	}
	return n
}
