package layout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Support is whether the cluster supports a feature.
type Support int

// The results of a probe.
const (
	Unknown Support = iota
	Supported
	Unsupported
)

func supported(yes bool) Support {
	if yes {
		return Supported
	}
	return Unsupported
}

// capabilities are the probed features of the API server and the scheduler.
type capabilities struct {
	// counters: the API server stores shared counters. Shares: the scheduler counts allocated shares of a device when it decides about other
	// devices of the GPU. Taints: the API server stores device taints, which is assumed until it has dropped one.
	counters, shares, taints Support

	retry    backoff.Backoff
	failures int
}

// errCounters is why no GPU is partitioned.
var errCounters = errors.New("whether the API server stores shared counters, which keep the devices of one GPU apart, is not known yet")

func newCapabilities() capabilities {
	return capabilities{retry: backoff.Backoff{First: retryFirst, Max: retryMax}}
}

// limit returns the modes in which a GPU is advertised: without modes that only counters keep apart, where no counters are stored, and where
// the scheduler does not count the shares of these modes. Until the cluster has been probed it returns all of them.
func (c *capabilities) limit(as gpu.Modes) gpu.Modes {
	if c.counters == Unsupported || c.counters == Supported && c.uncounted(as) {
		return as.WithoutCounters()
	}
	return as
}

// uncounted reports whether modes have shares that the scheduler does not count.
func (c *capabilities) uncounted(as gpu.Modes) bool {
	return c.shares == Unsupported && as.Shared()
}

// reduced reports whether a GPU is advertised in one mode of several only because its shares are not counted.
func (c *capabilities) reduced(as gpu.Modes) bool {
	modes := 0
	for _, has := range []bool{as.Whole, as.TimeSlice != nil, as.MPS != nil, len(as.MIG) > 0} {
		if has {
			modes++
		}
	}
	return c.counters == Supported && c.uncounted(as) && (as.TimeSlice != nil || as.MPS != nil) && modes > 1
}

// ask probes the API server: whether it stores counters, and, where it does, whether the scheduler counts shares.
func (api APIPorts) ask(ctx context.Context) (counters, shares Support, err error) {
	stored, err := api.PartitionableDevices(ctx)
	if err != nil {
		return Unknown, Unknown, err
	}
	if !stored {
		return Unsupported, Unknown, nil
	}
	counted, err := api.CountsShares(ctx)
	if err != nil {
		return Unknown, Unknown, err
	}
	return Supported, supported(counted), nil
}

// unprobed reports whether the layout waits for a probe.
func (s *Snapshot) unprobed() bool { return errors.Is(s.Err, errCounters) }

// probe probes the support of counters, where the layout waits for that and a probe is due.
func (w *worker) probe(ctx context.Context) {
	c := &w.state.capabilities
	if !w.output.latest.Load().unprobed() || !c.retry.Due(time.Now()) {
		return
	}
	type answer struct{ counters, shares Support }
	found, err := call(ctx, w, func(ctx context.Context) (answer, error) {
		counters, shares, err := w.ports.API.ask(ctx)
		return answer{counters, shares}, err
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "What is partitioned is not published yet")
		c.retry.Defer(time.Now())
		if c.failures++; c.failures == retryBudget {
			w.state.notices.warn(advice{reason: events.PartitionableDevicesUnknown}, fmt.Sprintf("No change of the layout is published: %v", err))
		}
		return
	}
	c.failures, c.shares = 0, found.shares
	c.retry.Reset()
	w.state.countersAre(found.counters)
	w.output.stale = true
}

// countersAre records whether the API server stores counters.
func (s *state) countersAre(found Support) {
	s.capabilities.counters = found
	if found == Unsupported {
		s.notices.warn(advice{reason: events.PartitionableDevicesDisabled}, "The API server stores no shared counters of devices, so every GPU is advertised "+
			"in one mode: whole where its configuration allows that, else as a fixed set of MIG devices; turn on the feature gate "+
			"DRAPartitionableDevices (Kubernetes 1.36 has it on)")
	}
}
