package plugin

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/diagnostics"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
	"github.com/prism-gpu/prism/pkg/plugin/reconcile"
	"github.com/prism-gpu/prism/pkg/podresources"
)

// newReconciler builds the reconciler that collects resources without an owner. It reads claims with the client that no claim waits for.
func newReconciler(cfg *config.Plugin, state State, api API, tx *prepare.Transaction, metrics *diagnostics.Metrics) *reconcile.Reconciler {
	state.outside.states.events = api.Events
	return reconcile.New(reconcile.Options{
		Node:   collected{Transaction: tx, Collector: tx.Collector(), Config: cfg, former: state.former, outside: state.outside, specs: state.Specs},
		Claims: claimLookup{Claims: kube.Claims{Client: api.Background}},
		Pods:   kubeletPods{podresources.Client{Socket: cfg.Paths.KubeletPodResources, CDIKind: cdi.Kind(cfg.DriverName)}, state.former},
		Report: collection{Events: api.Events, Metrics: metrics},
	})
}

// collected is the state that the reconciler cleans: the transaction, and the files that the kubelet-plugin library writes beside it.
type collected struct {
	*prepare.Transaction
	*gc.Collector
	Config  *config.Plugin
	former  *formerNames
	outside outside
	specs   *cdi.Dir
}

var _ reconcile.Node = collected{}

// Recover also cleans the directories outside of the plugin's own. It removes CDI specs once they are in the present directory, and
// programs once no spec names them, which is known when all specs are in the present directory.
func (c collected) Recover(ctx context.Context) error {
	err := errors.Join(c.Transaction.Recover(ctx), c.outside.roots.sweep(ctx, c.Transaction, c.specs))
	if err != nil || c.outside.roots.former() {
		return err
	}
	return c.outside.states.sweep(ctx, c.specs)
}

// Unprepare undoes a claim that the kubelet does not know any more.
func (c collected) Unprepare(ctx context.Context, claim checkpoint.Claim) error {
	if err := c.Transaction.Unprepare(ctx, claim.UID); err != nil {
		return err
	}
	uid := types.UID(claim.UID)
	records, err := c.Records()
	named := slices.ContainsFunc(records, func(r *checkpoint.Record) bool {
		return r.Claim.Namespace == claim.Namespace && r.Claim.Name == claim.Name
	})
	var failed []error
	for _, cfg := range append([]*config.Plugin{c.Config}, c.former.configs()...) {
		metadata := driver.MetadataOf(cfg)
		if named || err != nil {
			failed = append(failed, metadata.RemoveSpecs(uid)) // its folder's name contains no UID: the present claim of that name uses it
			continue
		}
		failed = append(failed, metadata.Remove(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, uid))
	}
	return errors.Join(failed...)
}

// claimLookup reads the claims of records from the API server.
type claimLookup struct{ Claims kube.Claims }

// Exists reports whether the claim with that UID exists. The text of the error, which becomes an Event of the Node, does not name the claim as
// the API server's does.
func (l claimLookup) Exists(ctx context.Context, claim checkpoint.Claim) (bool, error) {
	found, err := l.Claims.Exists(ctx, kube.ClaimRef{Namespace: claim.Namespace, Name: claim.Name, UID: types.UID(claim.UID)})
	if err != nil {
		return false, prepare.Redact("the API server did not answer: "+unnamedCause(err), err)
	}
	return found, nil
}

// unnamedCause is the part of an error of the API server that does not name the object.
func unnamedCause(err error) string {
	if call, ok := errors.AsType[*url.Error](err); ok {
		return call.Err.Error()
	}
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return "the log of the plugin has the cause"
}

// collection reports garbage collection: in the log, as Events of the node, and as metrics.
type collection struct {
	Events  events.Recorder
	Metrics interface {
		Collected(kind gc.Kind)
		CollectionFailed()
	}
}

// Removed reports each thing that was removed in the log, and all of one kind in one Event: Events with the same reason and action that
// follow each other keep the first one's text.
func (r collection) Removed(ctx context.Context, leaks []gc.Leak) {
	byKind := map[gc.Kind][]string{}
	for _, o := range leaks {
		klog.FromContext(ctx).Info("Removed leaked resources", "kind", o.Kind, "resource", o.String(), "claim", klog.KRef(o.Claim.Namespace, o.Claim.Name))
		r.Metrics.Collected(o.Kind)
		byKind[o.Kind] = append(byKind[o.Kind], o.String())
	}
	for _, kind := range gc.Kinds {
		if names := byKind[kind]; len(names) > 0 {
			action := "Remove" + strings.ToUpper(string(kind[:1])) + string(kind[1:])
			r.Events.Normal(events.GarbageCollected, action, "Removed leaked resources: "+strings.Join(names, ", "))
		}
	}
}

// Failed counts every failure and reports new ones.
func (r collection) Failed(ctx context.Context, err error, news bool) {
	r.Metrics.CollectionFailed()
	if news {
		klog.FromContext(ctx).Error(err, "Garbage collection failed", prepare.LogValues(err)...)
		r.Events.Warn(events.GarbageCollectionFailed, events.ActionReconcile, err.Error())
	}
}

// kubeletPods asks the kubelet about pods for the reconciler.
type kubeletPods struct {
	podresources.Client
	former *formerNames
}

// InUse lists the claims that containers have now.
func (p kubeletPods) InUse(ctx context.Context, own func(namespace, name string) bool) ([]reconcile.Use, error) {
	uses := []reconcile.Use{}
	clients := []podresources.Client{p.Client}
	for _, name := range p.former.names() {
		clients = append(clients, podresources.Client{Socket: p.Socket, CDIKind: cdi.Kind(name)})
	}
	for _, client := range clients {
		listed, err := client.Claims(ctx, own)
		if err != nil {
			return nil, err
		}
		for _, claim := range listed {
			uses = append(uses, reconcile.Use{Namespace: claim.Namespace, Name: claim.Name, Devices: claim.CDIDevices})
		}
	}
	return uses, nil
}
