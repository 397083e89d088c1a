package kube_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// TestReportsAnnouncement_Set_BelongsToTheNode: the Lease is deleted with the Node, is recreated if it belongs to a former Node, and is not
// renewed.
func TestReportsAnnouncement_Set_BelongsToTheNode(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", UID: "first"}}
	client := fake.NewClientset(node)
	a := kube.ReportsAnnouncement{Client: client, Namespace: "prism", DriverName: "gpu.example.com", NodeName: "n0", Label: "profiles.gpu.prism.dev/driver"}
	leases := func() []coordinationv1.Lease {
		found, err := client.CoordinationV1().Leases("").List(ctx, metav1.ListOptions{LabelSelector: "profiles.gpu.prism.dev/driver=gpu.example.com"})
		require.NoError(t, err)
		return found.Items
	}
	require.NoError(t, a.Set(ctx, false), "there was none")
	for _, uid := range []types.UID{"first", "first", "second"} {
		node.UID = uid
		_, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, a.Set(ctx, true))
		found := leases()
		require.Len(t, found, 1)
		assert.Equal(t, []string{"prism", "gpu.example.com.n0"}, []string{found[0].Namespace, found[0].Name})
		assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n0", UID: uid}}, found[0].OwnerReferences)
		assert.Nil(t, found[0].Spec.RenewTime)
	}
	written := 0
	for _, action := range client.Actions() {
		if action.Matches("create", "leases") {
			written++
		}
	}
	assert.Equal(t, 2, written)
	require.NoError(t, a.Set(ctx, false))
	assert.Empty(t, leases())

	client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, assert.AnError })
	require.ErrorIs(t, a.Set(ctx, true), assert.AnError)
}

// TestNamespaces_Get_NoneIsAnAnswer: a missing namespace is a result, any other failure is an error.
func TestNamespaces_Get_NoneIsAnAnswer(t *testing.T) {
	t.Parallel()
	created := metav1.Unix(1, 0)
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "uid", CreationTimestamp: created}})
	of := kube.Namespaces{Client: client}
	uid, at, err := of.Get(t.Context(), "team")
	require.NoError(t, err)
	assert.Equal(t, types.UID("uid"), uid)
	assert.True(t, at.Equal(created.Time))
	uid, _, err = of.Get(t.Context(), "other")
	require.NoError(t, err)
	assert.Empty(t, uid)
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, assert.AnError })
	_, _, err = of.Get(t.Context(), "team")
	require.ErrorIs(t, err, assert.AnError)
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		const odd = "404 page not found" // not from an API server
		return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Resource: "namespaces"}, "team", odd, 0, true)
	})
	_, _, err = of.Get(t.Context(), "team")
	require.Error(t, err)
	get, ok := client.Actions()[0].(clienttesting.GetActionImpl)
	require.True(t, ok)
	assert.Empty(t, get.GetOptions.ResourceVersion, "a cache may have a namespace that was deleted")
}
