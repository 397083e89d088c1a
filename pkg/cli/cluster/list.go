package cluster

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
)

// each lists objects in pages, and passes each of them on.
func each[T runtime.Object](ctx context.Context, options metav1.ListOptions, page pager.ListPageFunc, add func(T)) error {
	return pager.New(page).EachListItem(ctx, options, func(object runtime.Object) error {
		if of, ok := object.(T); ok {
			add(of)
		}
		return nil
	})
}

// Slices returns the ResourceSlices of a driver on a node, or on all nodes for "".
func Slices(ctx context.Context, client kubernetes.Interface, driver, node string) (found []resourceapi.ResourceSlice, err error) {
	selector := fields.Set{resourceapi.ResourceSliceSelectorDriver: driver}
	if node != "" {
		selector[resourceapi.ResourceSliceSelectorNodeName] = node
	}
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.ResourceV1().ResourceSlices().List(ctx, options)
	}
	err = each(ctx, metav1.ListOptions{FieldSelector: selector.String()}, page, func(s *resourceapi.ResourceSlice) { found = append(found, *s) })
	return found, Explain("listing ResourceSlices of driver "+driver, "list on resourceslices of resource.k8s.io", err)
}

// Claims returns the ResourceClaims of all namespaces that devices of a driver are allocated to.
func Claims(ctx context.Context, client kubernetes.Interface, driver string) (found []resourceapi.ResourceClaim, err error) {
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.ResourceV1().ResourceClaims("").List(ctx, options)
	}
	err = each(ctx, metav1.ListOptions{}, page, func(claim *resourceapi.ResourceClaim) {
		if len(results(claim, driver)) > 0 {
			found = append(found, *claim)
		}
	})
	return found, Explain("listing ResourceClaims of all namespaces", "list on resourceclaims of resource.k8s.io in all namespaces", err)
}

// nodes is the resource of Nodes.
var nodes = corev1.SchemeGroupVersion.WithResource("nodes")

// Annotations returns the annotations of a node by its name, or of all nodes for "".
func Annotations(ctx context.Context, client metadata.Interface, node string) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	if node != "" {
		found, err := client.Resource(nodes).Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return nil, Explain("reading node "+node, "get on nodes", err)
		}
		all[node] = found.Annotations
		return all, nil
	}
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.Resource(nodes).List(ctx, options)
	}
	err := each(ctx, metav1.ListOptions{}, page, func(n *metav1.PartialObjectMetadata) { all[n.Name] = n.Annotations })
	return all, Explain("listing nodes", "list on nodes", err)
}

// Drivers returns the names of the drivers that publish devices of a node, for a sentence.
func Drivers(ctx context.Context, client kubernetes.Interface, node string) string {
	list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{resourceapi.ResourceSliceSelectorNodeName: node}.String(), Limit: 500,
	})
	if err != nil {
		return ""
	}
	var names []string
	for i := range list.Items {
		if name := list.Items[i].Spec.Driver; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Pods returns the pods of all namespaces that the options select.
func Pods(ctx context.Context, client kubernetes.Interface, options metav1.ListOptions) (found []corev1.Pod, err error) {
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods("").List(ctx, options)
	}
	err = each(ctx, options, page, func(pod *corev1.Pod) { found = append(found, *pod) })
	return found, Explain("listing pods of all namespaces", "list on pods in all namespaces", err)
}
