package driver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	// healthPeriod is the longest time between two reports: the kubelet reports devices as Unknown 30 s after their last report.
	healthPeriod = 10 * time.Second
	// healthValid is how long the result of a check is valid: three polls of the GPUs.
	healthValid = 30 * time.Second
)

// Health reports the health of devices to the kubelet, which writes it into the status of pods.
type Health struct {
	// Devices lists the devices that pods may use now.
	Devices func() []HealthDevice
	// Of returns the health of a device that uses a GPU.
	Of func(d HealthDevice) DeviceHealth
	// Began is when the checks began.
	Began time.Time
	// Changed returns channels each of which is closed at the next change of the devices, or of the health of one. Nil channels are allowed.
	Changed func() (devices, health <-chan struct{})
}

// HealthDevice is a device of an allocation result.
type HealthDevice struct {
	Pool, Name string
	Type       gpu.DeviceType
	// GPU is the physical GPU; empty for a monitor device of all GPUs.
	GPU gpu.UUID
}

// DeviceHealth is the health of a device.
type DeviceHealth struct {
	State HealthState
	// Reason is the problem in CamelCase; empty unless the state is Unhealthy.
	Reason string
	// Message says what is wrong and what to do. A change of it changes the status of every pod with the device, so it contains neither times
	// nor counts.
	Message string
	// Checked is when the GPU was checked last; zero: never.
	Checked time.Time
}

// HealthState is whether a device works, as in the kubelet's API.
type HealthState = kubeletplugin.HealthStatus

// The states.
const (
	HealthUnknown = kubeletplugin.HealthStatusUnknown
	Healthy       = kubeletplugin.HealthStatusHealthy
	Unhealthy     = kubeletplugin.HealthStatusUnhealthy
)

// notChecked is the message about a device whose last check is too long ago, or that was never checked.
const notChecked = "the GPU was not checked in time: the NVIDIA driver does not answer, or the kubelet plugin of this node is overloaded"

// At returns the health at a time: a result without a problem is valid for 30 s. A problem is valid until a check finds that it ended.
func (h DeviceHealth) At(now time.Time) DeviceHealth {
	switch {
	case h.State == Unhealthy:
		return h
	case h.State != Healthy:
		h.State, h.Message = HealthUnknown, cmp.Or(h.Message, notChecked)
	case now.Sub(h.Checked) > healthValid:
		h.State, h.Message = HealthUnknown, notChecked
	}
	return h
}

// WatchHealthStatus reports the health of all devices to the kubelet until the context ends: at once, at every change, and after healthPeriod
// without one. During a rolling update the kubelet watches two processes, which report the same.
func (h *Handler) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	if h.options.Health == nil {
		return kubeletplugin.ErrHealthNotSupported
	}
	return h.options.Health.watch(ctx, reports)
}

func (h *Health) watch(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	timer := time.NewTimer(healthPeriod)
	defer timer.Stop()
	var last []kubeletplugin.DeviceHealth
	for due := true; ; {
		devices, health := h.Changed() // before the report, so that no change is missed
		if report := h.report(time.Now()); due || !slices.EqualFunc(report, last, sameHealth) {
			select {
			case reports <- kubeletplugin.DeviceHealthReport{Devices: report}:
			case <-ctx.Done():
				return nil
			}
			last = report
			timer.Reset(healthPeriod)
		}
		due = false
		select {
		case <-devices:
		case <-health:
		case <-timer.C:
			due = true
		case <-ctx.Done():
			return nil
		}
	}
}

// report is the health of all devices, in the order of pools and names.
func (h *Health) report(now time.Time) []kubeletplugin.DeviceHealth {
	devices := h.Devices()
	report := make([]kubeletplugin.DeviceHealth, 0, len(devices))
	for _, d := range devices {
		health := DeviceHealth{State: Healthy, Checked: now}
		if d.Type != gpu.TypeMonitor { // which uses no GPU
			health = h.Of(d).At(now)
		}
		report = append(report, kubeletplugin.DeviceHealth{
			PoolName: d.Pool, DeviceName: d.Name, Health: health.State, Message: health.Message, LastUpdated: health.Checked,
		})
	}
	slices.SortFunc(report, func(a, b kubeletplugin.DeviceHealth) int {
		return cmp.Or(cmp.Compare(a.PoolName, b.PoolName), cmp.Compare(a.DeviceName, b.DeviceName))
	})
	return report
}

// sameHealth reports whether the status of a pod is the same after both reports of a device.
func sameHealth(a, b kubeletplugin.DeviceHealth) bool {
	return a.PoolName == b.PoolName && a.DeviceName == b.DeviceName && a.Health == b.Health && a.Message == b.Message
}
