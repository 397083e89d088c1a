package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Configs reads ConfigMaps, and the labels that choose in them.
type Configs struct {
	Client kubernetes.Interface
}

// Get returns the data of a ConfigMap, in one read that no cache answers; nil for one without data. Errors keep the API
// server's: a caller can tell one that will pass from one that is for people to mend.
func (c Configs) Get(ctx context.Context, namespace, name string) (map[string]string, error) {
	found, err := c.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading ConfigMap %s/%s: there is none; create it or choose another: %w", namespace, name, err)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("reading ConfigMap %s/%s: it is not allowed; give the plugin's service account the right to get it: %w",
			namespace, name, err)
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, name, err)
	}
	return found.Data, nil
}

// Label returns the value of a label of a Node, empty where it has none, in one read that no cache answers.
func (c Configs) Label(ctx context.Context, node, key string) (string, error) {
	found, err := c.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the label %s of node %s: %w", key, node, err)
	}
	return found.Labels[key], nil
}
