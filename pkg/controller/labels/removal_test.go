package labels

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func conflict(node string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, node, errors.New("another manager"))
}

const binding = "prism-controller-nodelabels"

// hasBinding reports whether the controller may still write labels.
func (c *cluster) hasBinding() bool {
	c.t.Helper()
	err := c.Get(c.t.Context(), types.NamespacedName{Name: binding}, &rbacv1.ClusterRoleBinding{})
	require.NoError(c.t, client.IgnoreNotFound(err))
	return err == nil
}

func (c *cluster) removal() Removal {
	return Removal{DriverName: driver, Binding: binding, Client: c.Client, Direct: c.Client, Clock: c.clock}
}

// TestRemoval_SwitchedOff_OwnLabelsRemoved: all labels of the controller go, then its right to write them. Labels of others stay.
func TestRemoval_SwitchedOff_OwnLabelsRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	require.NoError(t, c.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: BindingName("prism-controller")}}))
	c.label("n1", keyProduct, "mine", "admin")
	c.label("n3", keyCount, "4", "gfd")
	c.publish("n1", "t4")
	c.publish("n2", "h100-80")
	c.reconcile("n1")
	c.reconcile("n2")
	require.NotEmpty(t, c.labels("n2"))

	c.writes = nil
	c.fail = conflict("n1")
	c.whileWaiting(func() { assert.NoError(t, c.removal().Start(t.Context())) })
	assert.Equal(t, []map[string]string{{keyProduct: "mine"}, {}, {keyCount: "4"}}, []map[string]string{c.labels("n1"), c.labels("n2"), c.labels("n3")})
	assert.Equal(t, "linux", c.node("n2").Labels["kubernetes.io/os"])
	assert.False(t, c.hasBinding())
	require.Len(t, c.writes, 2)
	assert.GreaterOrEqual(t, c.writes[1].Sub(c.writes[0]), writeInterval)

	c.writes = nil
	require.NoError(t, c.removal().Start(t.Context()))
	assert.Empty(t, c.writes)
}

// TestRemoval_NeverOn_OneRequest: without the binding no Node is read, also if the API server does not let the controller read the binding.
func TestRemoval_NeverOn_OneRequest(t *testing.T) {
	t.Parallel()
	for name, forbidden := range map[string]bool{"not found": false, "forbidden": true} {
		c := newCluster(t, "n1")
		requests := 0
		counted := interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				requests++
				if forbidden {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "clusterrolebindings"}, key.Name, nil)
				}
				return inner.Get(ctx, key, o, options...)
			},
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("unexpected list")
			},
		})
		removal := c.removal()
		removal.Direct = counted
		require.NoError(t, removal.Start(t.Context()), name)
		assert.Equal(t, 1, requests, name)
		assert.Equal(t, time.Unix(1_000_000, 0), c.clock.Now(), name)
	}
}
