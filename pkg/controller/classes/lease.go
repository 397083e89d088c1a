package classes

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownerRetry is the time between two attempts to set the owner of the Lease.
const ownerRetry = time.Minute

// LeaseOwner sets the owner of the Lease of the leader election, which is named after the release's objects: without an owner it would stay
// after the release was renamed, moved to another namespace, or uninstalled.
type LeaseOwner struct {
	// Role is the ClusterRole that owns it; Lease its name.
	Role   string
	Lease  types.NamespacedName
	Client client.Writer
	// Direct reads without a cache.
	Direct client.Reader
}

// NeedLeaderElection is true: the Lease exists once a process leads.
func (LeaseOwner) NeedLeaderElection() bool { return true }

// Start returns after the owner is set, or if the context ends.
func (l LeaseOwner) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, ownerRetry, true, func(ctx context.Context) (bool, error) {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return l.set(ctx) }) // the leader renews it every two seconds
		if err != nil {
			klog.FromContext(ctx).Info("Failed to set the owner of the Lease, will retry; without it the Lease outlives the release", "lease", l.Lease, "reason", err.Error())
		}
		return err == nil, nil
	})
	return nil
}

func (l LeaseOwner) set(ctx context.Context) error {
	owner, err := ownerOf(ctx, l.Direct, l.Role)
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{}
	if err := l.Direct.Get(ctx, l.Lease, lease); err != nil {
		return fmt.Errorf("reading Lease %s: %w", l.Lease, err)
	}
	if slices.ContainsFunc(lease.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner.UID }) {
		return nil
	}
	lease.OwnerReferences = []metav1.OwnerReference{owner}
	if err := l.Client.Update(ctx, lease); err != nil {
		return fmt.Errorf("setting the owner of Lease %s: %w", l.Lease, err)
	}
	return nil
}
