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

// Namespaces reads which namespace has a name now, from the API server's store: a cache may have one that was deleted.
type Namespaces struct {
	Client kubernetes.Interface
}

// Get returns the UID of a namespace, and when it was created; "" if there is none.
func (n Namespaces) Get(ctx context.Context, name string) (uid types.UID, created time.Time, err error) {
	found, err := n.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	// Anything may answer 404 in the place of an API server.
	if apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err) {
		return "", time.Time{}, nil
	}
	if err != nil {
		return "", time.Time{}, fmt.Errorf("reading the UID of namespace %s: %w", name, err)
	}
	return found.UID, found.CreationTimestamp.Time, nil
}
