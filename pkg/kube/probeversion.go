package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

// sharesCounted is the first version whose scheduler considers the shares of a device that are allocated to claims when it allocates
// other devices with the same shared counters (kubernetes/kubernetes#139034).
var sharesCounted = version.MustParseGeneric("1.36.2")

// CountsShares reports whether the cluster's scheduler counts allocated shares of a device against the other devices of its GPU. It
// decides by the API server's version; an unparsable one counts as old. After an error the result is unknown, and the call can be
// retried.
func (p Probe) CountsShares(ctx context.Context) (bool, error) {
	info, err := discovery.ToServerVersionInterfaceWithContext(p.Client.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return false, fmt.Errorf("reading the API server's version: %w", err)
	}
	parsed, err := version.ParseGeneric(info.GitVersion)
	return err == nil && parsed.AtLeast(sharesCounted), nil
}
