package driver

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/reconcile"
)

// Keeping is what the reconciler works on: the transaction, and the files that the kubelet-plugin library makes beside it.
type Keeping struct {
	*prepare.Transaction
	Config *config.Plugin
}

var _ reconcile.Node = Keeping{}

// Unprepare undoes a claim of which the kubelet does not know any more.
func (k Keeping) Unprepare(ctx context.Context, claim checkpoint.Claim) error {
	if err := k.Transaction.Unprepare(ctx, claim.UID); err != nil {
		return err
	}
	metadata, uid := metadataOf(k.Config), types.UID(claim.UID)
	records, err := k.Kept()
	heir := slices.ContainsFunc(records, func(r *checkpoint.Record) bool {
		return r.Claim.Namespace == claim.Namespace && r.Claim.Name == claim.Name
	})
	if heir || err != nil {
		return metadata.sweepSpecs(uid) // the folder has no UID: it is the other claim's
	}
	name := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	return metadata.sweep(kubeletplugin.NamespacedObject{NamespacedName: name, UID: uid})
}

// ClaimLookup asks the API server for the claims of records.
type ClaimLookup struct{ Claims kube.Claims }

// Exists tells whether that very claim is there.
func (l ClaimLookup) Exists(ctx context.Context, claim checkpoint.Claim) (bool, error) {
	return l.Claims.Exists(ctx, kube.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: types.UID(claim.UID)})
}

// OrphanReport tells what the reconciler does: in the log, as Events of the node, and as metrics.
type OrphanReport struct {
	Events  NodeEvents
	Metrics *Metrics
}

// Removed tells of each orphan in the log, and of all of one kind in one Event: Events with the same reason and action that
// follow each other keep the first one's text.
func (r OrphanReport) Removed(ctx context.Context, orphans []prepare.Orphan) {
	byKind := map[prepare.OrphanKind][]string{}
	for _, o := range orphans {
		klog.FromContext(ctx).Info("Removed what nobody owned", "kind", o.Kind, "orphan", o.String())
		r.Metrics.orphanRemoved(o.Kind)
		byKind[o.Kind] = append(byKind[o.Kind], o.String())
	}
	for _, kind := range prepare.OrphanKinds {
		if names := byKind[kind]; len(names) > 0 {
			action := "Remove" + strings.ToUpper(string(kind[:1])) + string(kind[1:])
			r.Events.Normal(events.GarbageCollected, action, "Removed what nobody owned: "+strings.Join(names, ", "))
		}
	}
}

// Failed counts every failure and tells of those that are news.
func (r OrphanReport) Failed(ctx context.Context, err error, news bool) {
	r.Metrics.reconcileFailed()
	if news {
		klog.FromContext(ctx).Error(err, "What other processes left is not cleared up")
		r.Events.Warn(events.GarbageCollectionFailed, events.ActionReconcile, err.Error())
	}
}
