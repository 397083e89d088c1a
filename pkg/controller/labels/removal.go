package labels

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// removalRetry is the time between two attempts to remove the labels.
	removalRetry = time.Minute
	// nodePage limits the number of Nodes in memory.
	nodePage = 250
)

// Removal removes the labels of all Nodes after they were switched off. The ClusterRoleBinding that allowed the controller to write them
// outlives the upgrade of the chart that switches them off: while it exists labels may be left, and it is deleted with the last of them.
// Without it nothing is read or watched.
type Removal struct {
	// DriverName is the DRA driver's name, Binding the name of the ClusterRoleBinding.
	DriverName, Binding string
	Client              client.Writer
	// Direct reads without a cache.
	Direct client.Reader
	// Clock is the time; nil means the real one.
	Clock clock.Clock
}

// NeedLeaderElection is true: one process removes labels, after the process that wrote them has lost the lead.
func (Removal) NeedLeaderElection() bool { return true }

// Start returns after the labels and the binding are gone, or if the context ends.
func (r Removal) Start(ctx context.Context) error {
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	for {
		err := r.remove(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		klog.FromContext(ctx).Info("Failed to remove labels of Nodes, will retry", "reason", err.Error())
		timer := r.Clock.NewTimer(removalRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

func (r Removal) remove(ctx context.Context) error {
	binding := &rbacv1.ClusterRoleBinding{}
	err := r.Direct.Get(ctx, types.NamespacedName{Name: r.Binding}, binding)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil // labels were never on, or were removed
	}
	if err != nil {
		return fmt.Errorf("reading ClusterRoleBinding %s: %w", r.Binding, err)
	}
	if err := r.removeLabels(ctx); err != nil {
		return err
	}
	if err := r.Client.Delete(ctx, binding, client.Preconditions(metav1.Preconditions{UID: &binding.UID})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting ClusterRoleBinding %s: %w", r.Binding, err)
	}
	klog.FromContext(ctx).Info("Removed all labels of Nodes, and the right to write them", "clusterRoleBinding", r.Binding)
	return nil
}

// removeLabels removes the labels page by page.
func (r Removal) removeLabels(ctx context.Context) error {
	var pace pace
	for next := ""; ; {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(newNode().GroupVersionKind())
		page.Kind += "List"
		if err := r.Direct.List(ctx, page, client.Limit(nodePage), client.Continue(next)); err != nil {
			return fmt.Errorf("listing nodes with labels: %w", err)
		}
		for i := range page.Items {
			node := &page.Items[i]
			own, _, err := owners(node, Manager(r.DriverName))
			if err != nil {
				return err
			}
			if len(own) == 0 {
				continue
			}
			if err := pace.wait(ctx, r.Clock); err != nil {
				return err
			}
			if err := apply(ctx, r.Client, node, Manager(r.DriverName), nil); err != nil {
				return err
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}
