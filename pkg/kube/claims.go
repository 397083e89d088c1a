package kube

import (
	"context"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/prism-gpu/prism/pkg/gpu"
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

// claimsPage is how many claims one answer of the API server has at most.
const claimsPage = 250

// Allocated lists the devices of a driver in the pools of a node that claims have been given, whether they are prepared or not.
// Admin access holds nothing and is left out. It reads all claims of the cluster, which no cache answers: ask seldom.
func (c Claims) Allocated(ctx context.Context, driver, node string) (map[gpu.PoolDevice]bool, error) {
	held := map[gpu.PoolDevice]bool{}
	for options := (metav1.ListOptions{Limit: claimsPage}); ; {
		page, err := c.Client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("reading which devices of node %s are allocated: %w", node, err)
		}
		for i := range page.Items {
			if allocation := page.Items[i].Status.Allocation; allocation != nil {
				hold(held, allocation.Devices.Results, driver, node)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return held, nil
		}
	}
}

func hold(held map[gpu.PoolDevice]bool, results []resourceapi.DeviceRequestAllocationResult, driver, node string) {
	for i := range results {
		r := &results[i]
		admin := r.AdminAccess != nil && *r.AdminAccess
		if r.Driver == driver && !admin && (r.Pool == node || strings.HasPrefix(r.Pool, node+"/")) {
			held[gpu.PoolDevice{Pool: r.Pool, Device: gpu.DeviceName(r.Device)}] = true
		}
	}
}
