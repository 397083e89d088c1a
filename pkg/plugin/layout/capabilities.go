package layout

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// features are the features of the API server and the scheduler.
type features struct {
	// counters: the API server stores shared counters. Shares: the scheduler counts allocated shares of a device when it decides about other
	// devices of the GPU. Taints: the API server stores device taints, which is assumed until it has dropped one.
	counters, shares, taints Support
}

// capabilities holds the features as last probed.
type capabilities struct {
	features

	retry    backoff.Backoff
	failures int
	again    reprobe
}

// errCounters is the reason why no GPU is partitioned.
var errCounters = errors.New("whether the API server stores shared counters, which keep the devices of one GPU apart, is not known yet")

func newCapabilities() capabilities {
	return capabilities{retry: backoff.Backoff{First: retryFirst, Max: retryMax}, again: newReprobe()}
}

// limit returns the modes in which a GPU is advertised: without modes that only counters keep apart, if no counters are stored or the
// scheduler does not count the shares of these modes. Until the cluster has been probed it returns all of them.
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
	return c.counters == Supported && c.uncounted(as) && as.SharesGPU() && as.Several()
}

// ask probes whether the API server stores counters and, if so, whether the scheduler counts shares. With again, it also probes whether the
// API server stores taints. Counters that no layout has required yet are not probed again.
func (api APIPorts) ask(ctx context.Context, known features, again bool) (features, error) {
	if again {
		stored, err := api.DeviceTaints(ctx)
		if err != nil {
			return known, err
		}
		if known.taints = supported(stored); known.counters == Unknown {
			return known, nil
		}
	}
	stored, err := api.PartitionableDevices(ctx)
	if err != nil {
		return known, err
	}
	if known.counters, known.shares = supported(stored), Unknown; !stored {
		return known, nil
	}
	counted, err := api.CountsShares(ctx)
	known.shares = supported(counted)
	return known, err
}

// unprobed reports whether the layout waits for a probe.
func (s *Snapshot) unprobed() bool { return errors.Is(s.Err, errCounters) }

// probe probes the features if a probe is due and the layout waits for it or the features are to be probed again.
func (w *worker) probe(ctx context.Context) {
	c, now := &w.state.capabilities, time.Now()
	waits, again := w.output.latest.Load().unprobed(), c.again.isDue(now)
	if !again && (!waits || !c.retry.Due(now)) {
		return
	}
	known := c.features
	found, err := call(ctx, w, func(ctx context.Context) (features, error) { return w.options.API.ask(ctx, known, again && !waits) })
	if err == nil && c.features != known { // the API server has dropped fields meanwhile, which counts
		c.again.done(time.Now())
		c.again.requested(request{dropped: true}, w.options.NodeName, time.Now())
		return
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The features of the API server are not known")
		w.state.notFound(err, waits)
		return
	}
	c.failures = 0
	c.retry.Reset()
	lost := c.again.done(time.Now())
	before := w.output.latest.Load()
	w.output.stale = w.output.stale || found != c.features
	w.state.found(found)
	if again && !waits {
		reprobed(w, before, found, lost || found != known) // else the same fields would be dropped again
	}
}

// reprobed reports a layout that changes because features were probed again, and requests its publication.
func reprobed(w *worker, before *Snapshot, found features, publish bool) {
	w.renew()
	if after := w.output.latest.Load(); before.Err == nil && after.Err == nil && !reflect.DeepEqual(before.Layout, after.Layout) {
		w.state.notices.changed(found)
	}
	if publish {
		w.options.API.Probed(found.taints != Unsupported)
	}
}

// notFound puts the next probe off, and reports that a layout waits for it.
func (s *state) notFound(err error, waits bool) {
	c := &s.capabilities
	c.retry.Defer(time.Now())
	c.again.deferred(c.retry.Next())
	if c.failures++; waits && c.failures == retryBudget {
		s.notices.warn(advice{reason: events.PartitionableDevicesUnknown}, fmt.Sprintf("No change of the layout is published: %v", err))
	}
}

// found records the features, and reports the missing ones.
func (s *state) found(now features) {
	s.capabilities.shares, s.capabilities.taints = now.shares, now.taints
	if now.shares == Supported {
		s.notices.clear(advice{reason: events.SharedCountersUnsupported})
	}
	s.countersAre(now.counters)
}

// countersAre records whether the API server stores counters.
func (s *state) countersAre(found Support) {
	s.capabilities.counters = found
	about := advice{reason: events.PartitionableDevicesDisabled}
	if found != Unsupported {
		s.notices.clear(about)
		return
	}
	s.notices.warn(about, "The API server stores no shared counters of devices, or the scheduler does not know them, so every GPU is advertised "+
		"in one mode: whole where its configuration allows that, else as a fixed set of MIG devices; turn on the feature gate "+
		"DRAPartitionableDevices (Kubernetes 1.36 has it on)")
}
