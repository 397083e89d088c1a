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

// Metadata of the ConfigMap are not reported.
func TestConfigWatch_Changes_OnlyDataReported(t *testing.T) {
	t.Parallel()
	nodes := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "prism", Name: "nodes", ResourceVersion: "1"}, Data: map[string]string{"a": "x"}}
	client := fake.NewClientset(nodes.DeepCopy())
	reported := make(chan bool, 64)
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() {
		w := kube.ConfigWatch{Client: client, Namespace: "prism", Map: "nodes"}
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
	expect("the ConfigMap", func() error { return nil })
	require.Eventually(t, func() bool { return watches(client) == 1 }, time.Minute, time.Millisecond)

	update := func(version string, change func()) func() error {
		return func() error {
			change()
			nodes.ResourceVersion = version
			_, err := client.CoreV1().ConfigMaps("prism").Update(ctx, nodes, metav1.UpdateOptions{})
			return err
		}
	}
	require.NoError(t, update("2", func() { nodes.Labels = map[string]string{"other": "label"} })())
	expect("the content", update("3", func() { nodes.Data["a"] = "y" }))
	expect("no ConfigMap", func() error { return client.CoreV1().ConfigMaps("prism").Delete(ctx, "nodes", metav1.DeleteOptions{}) })
	assert.Empty(t, reported, "no other change is reported")
	cancel()
	require.NoError(t, <-returned)
	requireOnly(t, client, "configmaps", "nodes")
}

// requireOnly checks that only the object of that name was listed and watched.
func requireOnly(t *testing.T, client *fake.Clientset, resource, name string) {
	t.Helper()
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
		assert.Equal(t, resource, action.GetResource().Resource)
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
