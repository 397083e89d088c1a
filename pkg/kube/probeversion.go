package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

// sharesCounted is the first version whose scheduler counts the shares that stored claims have of a device when it decides about other
// devices that draw on the same counters (kubernetes/kubernetes#139034).
var sharesCounted = version.MustParseGeneric("1.36.2")

// CountsShares tells whether the scheduler of the cluster counts the shares that claims have of one device against the other devices of
// its GPU. It goes by the API server's version; one that is no version is taken for an old one. With an error nothing is known; asking
// again later is right.
func (p Probe) CountsShares(ctx context.Context) (bool, error) {
	info, err := discovery.ToServerVersionInterfaceWithContext(p.Client.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return false, fmt.Errorf("asking for the API server's version: %w", err)
	}
	is, err := version.ParseGeneric(info.GitVersion)
	return err == nil && is.AtLeast(sharesCounted), nil
}
