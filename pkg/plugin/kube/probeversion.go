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

// countersCounted is the first version whose scheduler counts shared counters by default (feature gate DRAPartitionableDevices).
var countersCounted = version.MustParseGeneric("1.36.0")

// atLeast compares a version; one that cannot be parsed counts as old.
func atLeast(is string, wanted *version.Version) bool {
	parsed, err := version.ParseGeneric(is)
	return err == nil && parsed.AtLeast(wanted)
}

// CountsShares reports whether the cluster's scheduler counts allocated shares of a device against the other devices of its GPU. It decides
// by the scheduler's version if it is known, otherwise by the API server's; an unparsable one counts as old. After an error the result is
// unknown, and the call can be retried.
func (p Probe) CountsShares(ctx context.Context) (bool, error) {
	if p.SchedulerVersion != "" {
		return atLeast(p.SchedulerVersion, sharesCounted), nil
	}
	info, err := discovery.ToServerVersionInterfaceWithContext(p.Client.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return false, fmt.Errorf("reading the API server's version: %w", err)
	}
	return atLeast(info.GitVersion, sharesCounted), nil
}
