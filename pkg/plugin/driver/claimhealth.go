package driver

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// ConditionHealthy is the condition of devices that is False while their GPU has a problem, and Unknown while that is not known for long; a
// healthy device has none. The kubelet reports neither init containers nor extended resources, so their claims are the only place.
const ConditionHealthy = "Healthy"

// reasonNotChecked is the reason of status Unknown.
const reasonNotChecked = "NotChecked"

const (
	// unknownFor is for how long the health of a device is not known before its claims say so: a driver that is loaded again in an upgrade causes
	// no write.
	unknownFor = 5 * time.Minute
	// unknownPeriod is the time between two checks for devices that are not known for long.
	unknownPeriod = time.Minute
)

// Conditions is the ConditionSource of ConditionHealthy.
func (h *Health) Conditions(r *checkpoint.Record) []*kube.Condition {
	conditions, now := make([]*kube.Condition, len(r.Results)), time.Now()
	for i := range r.Results {
		conditions[i] = h.condition(HealthDeviceOf(&r.Results[i]), now)
	}
	return conditions
}

// HealthDeviceOf is the device of a result.
func HealthDeviceOf(r *checkpoint.Result) HealthDevice {
	return HealthDevice{Pool: r.Pool, Name: r.Device, Type: r.Type, GPU: r.GPUUUID}
}

// condition is a device's condition at a time.
func (h *Health) condition(d HealthDevice, now time.Time) *kube.Condition {
	if d.Type == gpu.TypeMonitor {
		return nil
	}
	health := h.Of(d).At(now)
	since := health.Checked
	if since.IsZero() {
		since = h.Began
	}
	switch {
	case health.State == Unhealthy:
		return &kube.Condition{Type: ConditionHealthy, Reason: health.Reason, Message: health.Message}
	case health.State == HealthUnknown && now.Sub(since) >= unknownFor:
		return &kube.Condition{Type: ConditionHealthy, Unknown: true, Reason: reasonNotChecked, Message: health.Message}
	}
	return nil
}

// FollowClaims has the status of prepared claims written again when ConditionHealthy of one of their devices changes, until the context ends.
// Claims on other devices are left alone. At the start each claim is compared once, as soon as the health of its devices is known: a problem may
// have ended while no process ran. One process of the node runs it. changed must not block.
func (h *Health) FollowClaims(ctx context.Context, records func() ([]*checkpoint.Record, error), changed func(r *checkpoint.Record)) {
	timer := time.NewTicker(unknownPeriod)
	defer timer.Stop()
	var known map[HealthDevice]kube.Condition
	for {
		devices, health := h.Changed()
		if known == nil {
			known = h.compareAll()
		}
		now := h.conditions(known)
		if differing := differ(known, now); len(differing) > 0 {
			all, err := records()
			for _, r := range all {
				if r.State == checkpoint.Done && usesAny(r, differing) {
					changed(r)
				}
			}
			if err == nil {
				known = now
			} else if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "The health of devices is not written to all claims yet")
			}
		}
		select {
		case <-devices:
		case <-health:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// uncompared is the condition of devices whose claims have not been compared since the start.
var uncompared = kube.Condition{}

// compareAll are the conditions of all devices before the first comparison.
func (h *Health) compareAll() map[HealthDevice]kube.Condition {
	conditions := map[HealthDevice]kube.Condition{}
	for _, d := range h.Devices() {
		if d.Type != gpu.TypeMonitor {
			conditions[d] = uncompared
		}
	}
	return conditions
}

// conditions are the conditions of all devices that have one now. An uncompared device stays one while its health is not known: the condition
// in its claims may be right.
func (h *Health) conditions(before map[HealthDevice]kube.Condition) map[HealthDevice]kube.Condition {
	conditions, now := map[HealthDevice]kube.Condition{}, time.Now()
	for _, d := range h.Devices() {
		last, compares := before[d]
		switch c := h.condition(d, now); {
		case c != nil:
			conditions[d] = *c
		case compares && last == uncompared && h.Of(d).At(now).State == HealthUnknown:
			conditions[d] = uncompared
		}
	}
	return conditions
}

// differ returns the devices whose conditions differ.
func differ(before, now map[HealthDevice]kube.Condition) map[HealthDevice]bool {
	differing := map[HealthDevice]bool{}
	for d, c := range now {
		if before[d] != c {
			differing[d] = true
		}
	}
	for d := range before {
		if _, has := now[d]; !has {
			differing[d] = true
		}
	}
	return differing
}

// usesAny reports whether a claim has one of the devices.
func usesAny(r *checkpoint.Record, devices map[HealthDevice]bool) bool {
	for i := range r.Results {
		if devices[HealthDeviceOf(&r.Results[i])] {
			return true
		}
	}
	return false
}
