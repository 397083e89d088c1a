package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Configs reads ConfigMaps, and labels of Nodes.
type Configs struct {
	Client kubernetes.Interface
}

// Get returns the data of a ConfigMap with one uncached read; nil for one without data. Errors wrap the errors of the API server, so that
// callers can distinguish transient errors from errors that an operator must fix.
func (c Configs) Get(ctx context.Context, namespace, name string) (map[string]string, error) {
	found, err := c.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading ConfigMap %s/%s: it does not exist; create it or configure another: %w", namespace, name, err)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("reading ConfigMap %s/%s: permission denied; grant the plugin's service account the verb get on it: %w",
			namespace, name, err)
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, name, err)
	}
	return found.Data, nil
}

// Label returns the value of a label of a Node with one uncached read; empty if it is not set.
func (c Configs) Label(ctx context.Context, node, key string) (string, error) {
	found, err := c.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the label %s of node %s: %w", key, node, err)
	}
	return found.Labels[key], nil
}
