package reports

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// Plugins are the pods of the kubelet plugin: one per node, briefly two. A node that announces reports may run none.
type Plugins struct {
	Reader client.Reader
	// Namespace and Selector select the pods; DriverName is in the label of the announcements.
	Namespace, DriverName string
	Selector              labels.Selector
	Port                  int
}

// PodCache restricts a cache to these pods and their required fields.
func PodCache(namespace string, selector labels.Selector) cache.ByObject {
	return cache.ByObject{
		Namespaces: map[string]cache.Config{namespace: {LabelSelector: selector}},
		Transform: func(object any) (any, error) {
			pod, ok := object.(*corev1.Pod)
			if !ok {
				return object, nil
			}
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
					CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
				},
				Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
				Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, Conditions: pod.Status.Conditions},
			}, nil
		},
	}
}

// AnnouncementCache restricts a cache to the announcements of a driver's nodes.
func AnnouncementCache(namespace, driverName string) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{namespace: {LabelSelector: announced(driverName)}}}
}

func announced(driverName string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{v1alpha1.AnnouncementLabel: driverName})
}

// Announced returns the announcements by node: of each node that stores reports, whether or not its plugin runs.
func (p Plugins) Announced(ctx context.Context) (map[string]*coordinationv1.Lease, error) {
	var leases coordinationv1.LeaseList
	if err := p.Reader.List(ctx, &leases, client.InNamespace(p.Namespace), client.MatchingLabelsSelector{Selector: announced(p.DriverName)}); err != nil {
		return nil, fmt.Errorf("listing the nodes that keep reports: %w", err)
	}
	all := map[string]*coordinationv1.Lease{}
	for i := range leases.Items {
		// A plugin may only create the Lease of its own node; admission compares its name.
		lease := &leases.Items[i]
		if node, ok := strings.CutPrefix(lease.Name, p.DriverName+"."); ok {
			all[node] = lease
		}
	}
	return all, nil
}

// Endpoints returns one endpoint of each node that runs such a pod, or stores reports. Of two pods it chooses the ready one, or the later
// one.
func (p Plugins) Endpoints(ctx context.Context) ([]Endpoint, error) {
	var pods corev1.PodList
	if err := p.Reader.List(ctx, &pods, client.InNamespace(p.Namespace), client.MatchingLabelsSelector{Selector: p.Selector}); err != nil {
		return nil, fmt.Errorf("listing the pods of the kubelet plugin: %w", err)
	}
	of := map[string]*corev1.Pod{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if node := pod.Spec.NodeName; node != "" && (of[node] == nil || better(pod, of[node])) {
			of[node] = pod
		}
	}
	keeping, err := p.Announced(ctx)
	if err != nil {
		return nil, err
	}
	for node := range keeping {
		if of[node] == nil {
			of[node] = &corev1.Pod{}
		}
	}
	all := make([]Endpoint, 0, len(of))
	for node, pod := range of {
		e := Endpoint{Node: node}
		if pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning {
			e.Address = net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(p.Port))
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Endpoint) int { return strings.Compare(a.Node, b.Node) })
	return all, nil
}

func better(a, b *corev1.Pod) bool {
	if ready(a) != ready(b) {
		return ready(a)
	}
	return a.CreationTimestamp.After(b.CreationTimestamp.Time)
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
