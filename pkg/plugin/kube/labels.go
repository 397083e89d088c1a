package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Labels reads the labels of namespaces and pods, each with one uncached read from the API server's cache, which is sufficient for a
// selector: a very recent change may be missed, and the API server's store is not read.
type Labels struct {
	Client kubernetes.Interface
}

// cached allows the API server to answer from its cache.
var cached = metav1.GetOptions{ResourceVersion: "0"}

// Namespace returns the labels of a namespace.
func (l Labels) Namespace(ctx context.Context, name string) (map[string]string, error) {
	found, err := l.Client.CoreV1().Namespaces().Get(ctx, name, cached)
	if err != nil {
		return nil, fmt.Errorf("reading the labels of namespace %s: %w", name, err)
	}
	return found.Labels, nil
}

// Pod returns the labels of the pod with that UID. A pod that is missing in the cache is read from the store.
func (l Labels) Pod(ctx context.Context, namespace, name string, uid types.UID) (map[string]string, error) {
	found, err := podOf(ctx, l.Client, namespace, name, uid)
	if err != nil {
		return nil, fmt.Errorf("reading the labels of pod %s/%s: %w", namespace, name, err)
	}
	return found.Labels, nil
}
