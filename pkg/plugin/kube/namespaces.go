package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Namespaces finds the current namespace of a name in the API server's store: a cache may contain a deleted one.
type Namespaces struct {
	Client kubernetes.Interface
}

// Get returns the UID of a namespace, and its creation time; "" if it does not exist.
func (n Namespaces) Get(ctx context.Context, name string) (uid types.UID, created time.Time, err error) {
	found, err := n.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	// A proxy or another server may return 404 instead of the API server.
	if apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err) {
		return "", time.Time{}, nil
	}
	if err != nil {
		return "", time.Time{}, fmt.Errorf("reading the UID of namespace %s: %w", name, err)
	}
	return found.UID, found.CreationTimestamp.Time, nil
}
