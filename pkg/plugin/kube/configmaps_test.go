package kube_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

func TestConfigsGet_Data_OneUncachedRead(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "prism", Name: "nodes"}, Data: map[string]string{"h100": "text"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "prism", Name: "empty"}},
	)
	data, err := kube.Configs{Client: client}.Get(t.Context(), "prism", "nodes")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"h100": "text"}, data)
	require.Len(t, client.Actions(), 1)
	assert.True(t, client.Actions()[0].Matches("get", "configmaps"))

	data, err = kube.Configs{Client: client}.Get(t.Context(), "prism", "empty")
	require.NoError(t, err)
	assert.Empty(t, data)
}

func TestConfigsGet_Error_CauseAndRemedy(t *testing.T) {
	t.Parallel()
	resource := corev1.Resource("configmaps")
	for name, c := range map[string]struct {
		cause error
		want  string
	}{
		"not found": {
			apierrors.NewNotFound(resource, "nodes"),
			`reading ConfigMap prism/nodes: it does not exist; create it or configure another: configmaps "nodes" not found`,
		},
		"forbidden": {
			apierrors.NewForbidden(resource, "nodes", errors.New("no role")),
			"reading ConfigMap prism/nodes: permission denied; grant the plugin's service account the verb get on it: " +
				`configmaps "nodes" is forbidden: no role`,
		},
		"unavailable": {
			apierrors.NewServiceUnavailable("the server is being upgraded"),
			"reading ConfigMap prism/nodes: the server is being upgraded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.cause })
			data, err := kube.Configs{Client: client}.Get(t.Context(), "prism", "nodes")
			assert.Nil(t, data)
			require.EqualError(t, err, c.want)
			assert.ErrorIs(t, err, c.cause)
		})
	}
}

func TestConfigsLabel_Node_ValueOrEmpty(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", Labels: map[string]string{configLabel: "h100"}}})
	got, err := kube.Configs{Client: client}.Label(t.Context(), "n0", configLabel)
	require.NoError(t, err)
	assert.Equal(t, "h100", got)
	got, err = kube.Configs{Client: client}.Label(t.Context(), "n0", "other")
	require.NoError(t, err)
	assert.Empty(t, got)
	_, err = kube.Configs{Client: client}.Label(t.Context(), "n1", configLabel)
	require.ErrorContains(t, err, "reading the label "+configLabel+" of node n1: ")
	assert.True(t, apierrors.IsNotFound(err))
}
