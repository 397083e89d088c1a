package layout

import (
	"errors"

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
