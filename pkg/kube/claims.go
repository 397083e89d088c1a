package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Claims looks for ResourceClaims.
type Claims struct {
	Client kubernetes.Interface
}

// Exists tells whether there is a claim of that name with that UID, in one read that no cache answers. It is false only where
// the API server said so of the claim: a server that does not serve claims, as during an upgrade, answers "not found" too, and
// that is an error here.
func (c Claims) Exists(ctx context.Context, claim Claim) (bool, error) {
	found, err := c.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading claim %s: %w", claim, err)
	}
	return found.UID == claim.UID, nil
}
