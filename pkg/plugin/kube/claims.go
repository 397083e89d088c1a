package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Claims reads ResourceClaims.
type Claims struct {
	Client kubernetes.Interface
}

// Exists reports, with one uncached read, whether a claim of that name with that UID exists. It is false only if the API server returned
// NotFound for the claim. A server that does not serve the resource, as during an upgrade, returns 404 too, which is an error here.
func (c Claims) Exists(ctx context.Context, claim ClaimRef) (bool, error) {
	found, err := c.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading claim %s: %w", claim, err)
	}
	return found.UID == claim.UID, nil
}
