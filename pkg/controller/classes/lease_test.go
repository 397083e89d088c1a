package classes

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestLeaseOwner_RenewedMeanwhile_Set: the leader renews the Lease periodically, and the API server may refuse the write for a while.
func TestLeaseOwner_RenewedMeanwhile_Set(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"renewed":   apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "prism-controller", nil),
		"forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "prism-controller", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prism-controller"}}
				lease.Spec.HolderIdentity = new("pod")
				api := newCluster(t, lease).Client.(client.WithWatch)
				writes := 0
				refusing := interceptor.NewClient(api, interceptor.Funcs{
					Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
						if writes++; writes == 1 {
							return refusal
						}
						return c.Update(ctx, o, options...)
					},
				})
				at := types.NamespacedName{Namespace: "ns", Name: "prism-controller"}
				owner := LeaseOwner{Role: "prism-controller", Lease: at, Client: refusing, Direct: api}
				assert.True(t, owner.NeedLeaderElection())
				require.NoError(t, owner.Start(t.Context()))
				require.NoError(t, owner.Start(t.Context()))
				assert.Equal(t, 2, writes, "an owner that is set stays")
				require.NoError(t, api.Get(t.Context(), at, lease))
				assert.Equal(t, []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "prism-controller", UID: "role"}},
					lease.OwnerReferences)
				assert.Equal(t, "pod", *lease.Spec.HolderIdentity)
			})
		})
	}
}
