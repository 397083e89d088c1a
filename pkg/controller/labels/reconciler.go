package labels

import (
	"context"
	"fmt"
	"maps"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Reconciler keeps the labels of Nodes. One goroutine calls it.
type Reconciler struct {
	Options
	// Client reads ResourceSlices and the metadata of Nodes from a cache.
	Client client.Client
	// Metrics may be nil.
	Metrics *Metrics
	// Clock is the time; nil means the real one.
	Clock clock.Clock

	pace pace
	// absent is the time since when a node with labels has no GPU.
	absent map[string]time.Time
	// conflicts is the number of labels of a node that another manager sets to another value.
	conflicts map[string]int
}

// Reconcile writes the labels of one node, if they differ.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	name := request.Name
	node := newNode()
	if err := r.Client.Get(ctx, request.NamespacedName, node); apierrors.IsNotFound(err) {
		delete(r.absent, name)
		r.setConflicts(ctx, name, nil)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading node %s: %w", name, err)
	}
	facts, err := r.facts(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	desired, complete := Plan(facts, r.Options)
	if !complete {
		klog.FromContext(ctx).V(4).Info("Kept the labels of a node with an incomplete pool", "node", name)
		return reconcile.Result{}, nil
	}
	own, others, err := owners(node, Manager(r.DriverName))
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(desired) > 0 {
		delete(r.absent, name)
	} else if left := r.absence(name, len(own) > 0); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	var conflicts []string
	for key, value := range desired {
		if current, found := node.Labels[key]; found && others[key] && current != value {
			conflicts = append(conflicts, key)
			delete(desired, key)
		}
	}
	r.setConflicts(ctx, name, conflicts)
	if same(node.Labels, own, desired) {
		return reconcile.Result{}, nil
	}
	return r.write(ctx, node, desired)
}

// facts are the facts of the ResourceSlices of a node.
func (r *Reconciler) facts(ctx context.Context, node string) ([]*Facts, error) {
	var list resourceapi.ResourceSliceList
	if err := r.Client.List(ctx, &list, client.MatchingFields{indexNode: node}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the ResourceSlices of node %s: %w", node, err)
	}
	all := make([]*Facts, 0, len(list.Items))
	for i := range list.Items {
		facts, err := cachedFacts(&list.Items[i])
		if err != nil {
			return nil, err
		}
		all = append(all, facts)
	}
	return all, nil
}

// absence returns the time until the labels of a node without GPUs are removed.
func (r *Reconciler) absence(node string, labelled bool) time.Duration {
	if !labelled {
		delete(r.absent, node)
		return 0
	}
	now := r.clock().Now()
	since, found := r.absent[node]
	if !found {
		if r.absent == nil {
			r.absent = map[string]time.Time{}
		}
		r.absent[node], since = now, now
	}
	return since.Add(absence).Sub(now)
}

// same reports whether the manager owns exactly the desired labels, with the desired values.
func same(current map[string]string, own map[string]bool, desired map[string]string) bool {
	if len(own) != len(desired) {
		return false
	}
	for key, value := range desired {
		if !own[key] || current[key] != value {
			return false
		}
	}
	return true
}

// write applies the labels. A conflict means that the cache lags behind: the event of the Node follows.
func (r *Reconciler) write(ctx context.Context, node *metav1.PartialObjectMetadata, desired map[string]string) (reconcile.Result, error) {
	if err := r.pace.wait(ctx, r.clock()); err != nil {
		return reconcile.Result{}, err
	}
	err := apply(ctx, r.Client, node, Manager(r.DriverName), desired)
	switch {
	case apierrors.IsConflict(err):
		klog.FromContext(ctx).V(2).Info("Labels of a node changed meanwhile, will retry", "node", node.Name, "reason", err.Error())
		return reconcile.Result{RequeueAfter: changeDelay}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	klog.FromContext(ctx).V(2).Info("Updated labels of a node", "node", node.Name, "labels", desired)
	return reconcile.Result{}, nil
}

// apply sets the labels of a manager, and removes its others. A Node that was deleted or created again meanwhile leads to a conflict.
func apply(ctx context.Context, writer client.Writer, node *metav1.PartialObjectMetadata, manager string, desired map[string]string) error {
	configuration := corev1ac.Node(node.Name).WithUID(node.UID).WithLabels(desired)
	if err := writer.Apply(ctx, configuration, client.FieldOwner(manager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("applying labels of node %s: %w", node.Name, err)
	}
	return nil
}

func (r *Reconciler) clock() clock.Clock {
	if r.Clock == nil {
		return clock.RealClock{}
	}
	return r.Clock
}

// setConflicts records the labels of other managers, and logs them if their number changed.
func (r *Reconciler) setConflicts(ctx context.Context, node string, found []string) {
	if r.conflicts == nil {
		r.conflicts = map[string]int{}
	}
	if len(found) > r.conflicts[node] {
		klog.FromContext(ctx).Info("Kept labels that another manager sets to another value", "node", node, "labels", found)
	}
	r.conflicts[node] = len(found)
	if len(found) == 0 {
		delete(r.conflicts, node)
	}
	sum := 0
	for n := range maps.Values(r.conflicts) {
		sum += n
	}
	r.Metrics.setConflicts(sum)
}

// pace spaces writes.
type pace struct{ next time.Time }

// wait returns at the time of the next write, or with an error when the context ends.
func (p *pace) wait(ctx context.Context, c clock.Clock) error {
	now := c.Now()
	if delay := p.next.Sub(now); delay > 0 {
		timer := c.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now = <-timer.C():
		}
	}
	p.next = now.Add(writeInterval)
	return nil
}
