package publish

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// The names, below the driver's domain, of the keys of taints.
const (
	// CleanupTaint is on a device that a pending cleanup blocks.
	CleanupTaint = "not-released"
	// DrainingTaint is on a device that the node's configuration advertises no more, until it is released.
	DrainingTaint = "config-change"
	// ConflictTaint is on every device while another component allocates the same GPUs.
	ConflictTaint = "conflict"
	// UnavailableSuffix follows the type of devices in the name of a taint that is on every such device while their service does not answer:
	// "mps-unavailable".
	UnavailableSuffix = "-unavailable"
	// BusySuffix ends the name of the taint on a device of a type while a program outside of claims uses its hardware: perfmon-busy.
	BusySuffix = "-busy"
)

// FailedValue is the value of the taint with UnavailableSuffix on the devices of a type of one GPU that were not restored after a failure.
const FailedValue = "failed"

// Conflict is the value of ConflictTaint: which other component allocates the node's GPUs.
type Conflict string

// The conflicts.
const (
	ConflictDevicePlugin Conflict = "device-plugin"
	ConflictDRADriver    Conflict = "dra-driver"
)

// TaintRule puts one taint on some devices. It applies to a device that is listed or that a pending cleanup blocks, to a type, to GPUs, or to
// all; to the node's monitor device no rule applies.
type TaintRule struct {
	// Name is the key below the driver's domain. Value may be empty; an empty Effect is NoSchedule.
	Name, Value string
	Effect      resourceapi.DeviceTaintEffect
	// TimeAdded is when the reason for the taint began; zero: the API server sets the time at which it stores the taint.
	TimeAdded metav1.Time
	// All: it applies to every device of every GPU.
	All bool
	// Type: it applies to every device of that type; empty for none. GPUs: it applies to all devices of these GPUs. With both, it applies to
	// the devices of that type of these GPUs.
	Type gpu.DeviceType
	GPUs map[gpu.UUID]bool
	// Devices: it applies to these devices.
	Devices map[gpu.PoolDevice]bool
	// Blocked are pending cleanups; the rule applies to devices that, by gpu.Excludes, cannot be used beside them.
	Blocked []gpu.PendingCleanup
	// WithoutTaints applies if the API server stores no taints.
	WithoutTaints WithoutTaints
}

// WithoutTaints decides about the devices of a rule if the API server stores no taints.
type WithoutTaints int

const (
	// Ignore publishes them as without the rule.
	Ignore WithoutTaints = iota
	// Withdraw publishes none of the node's devices as long as the rule exists.
	Withdraw
	// WithdrawType publishes none of the devices of the rule's Type, with GPUs none of that type of these GPUs.
	WithdrawType
	// WithdrawGPUs publishes none of the devices of the rule's GPUs, with Type none of that type.
	WithdrawGPUs
)

// CleanupTaints are the rules for pending cleanups.
func CleanupTaints(pending []gpu.PendingCleanup) []TaintRule {
	if len(pending) == 0 {
		return nil
	}
	return []TaintRule{{Name: CleanupTaint, Blocked: pending}}
}

// DrainingTaints are the rules for devices that are advertised until they are released.
func DrainingTaints(leaving map[gpu.PoolDevice]bool) []TaintRule {
	if len(leaving) == 0 {
		return nil
	}
	return []TaintRule{{Name: DrainingTaint, Devices: leaving}}
}

// ConflictTaints are the rules for a conflict; none for an empty one.
func ConflictTaints(with Conflict) []TaintRule {
	if with == "" {
		return nil
	}
	return []TaintRule{{Name: ConflictTaint, Value: string(with), All: true, WithoutTaints: Withdraw}}
}

// UnavailableTaints are the rules for devices of a type that cannot be used because a service of the node does not answer.
func UnavailableTaints(device gpu.DeviceType) []TaintRule {
	return []TaintRule{{Name: string(device) + UnavailableSuffix, Type: device, WithoutTaints: WithdrawType}}
}

// BusyTaints are the rules for the devices of a type of GPUs whose hardware another program uses. Without taints the devices are published: a
// claim that gets one reports the reason, and uses it once it is free.
func BusyTaints(device gpu.DeviceType, gpus []gpu.UUID) []TaintRule {
	if len(gpus) == 0 {
		return nil
	}
	return []TaintRule{{Name: string(device) + BusySuffix, Type: device, GPUs: setOf(gpus), WithoutTaints: Ignore}}
}

// FailedTaints are the rules for the devices of a type of GPUs that claims cannot use until they are restored.
func FailedTaints(device gpu.DeviceType, gpus []gpu.UUID) []TaintRule {
	if len(gpus) == 0 {
		return nil
	}
	return []TaintRule{{
		Name: string(device) + UnavailableSuffix, Value: FailedValue, Type: device, GPUs: setOf(gpus), WithoutTaints: WithdrawType,
	}}
}

func setOf(gpus []gpu.UUID) map[gpu.UUID]bool {
	set := map[gpu.UUID]bool{}
	for _, uuid := range gpus {
		set[uuid] = true
	}
	return set
}

// Withdrawn reports whether no device may be published under these rules; stored reports whether the API server stores taints.
func Withdrawn(rules []TaintRule, stored bool) bool {
	return !stored && slices.ContainsFunc(rules, func(r TaintRule) bool { return r.WithoutTaints == Withdraw })
}

// applies reports whether the rule is about a device in a pool.
func (r *TaintRule) applies(at gpu.PoolDevice, d gpu.Device) bool {
	return r.All || r.Devices[at] || r.selects(d) || slices.ContainsFunc(r.Blocked, func(cleanup gpu.PendingCleanup) bool { return cleanup.Blocks(d) })
}

// selects reports whether the rule's type and GPUs select a device.
func (r *TaintRule) selects(d gpu.Device) bool {
	typed, of := r.Type == d.Type(), r.GPUs[d.Parent().UUID]
	if r.Type != "" && len(r.GPUs) > 0 {
		return typed && of
	}
	return typed || of
}

// withdrawn reports whether the device is not published: its type is withheld, or the API server would not store its taint.
func (o Options) withdrawn(d gpu.Device) bool {
	return slices.Contains(o.Withheld, d.Type()) || o.TaintsDropped && slices.ContainsFunc(o.Taints, func(r TaintRule) bool {
		return (r.WithoutTaints == WithdrawType || r.WithoutTaints == WithdrawGPUs) && r.selects(d)
	})
}

// taints are the taints of a device, in the order of the rules. The monitor device is never tainted: it takes nothing of a GPU.
func (o Options) taints(d gpu.Device) (taints []resourceapi.DeviceTaint) {
	if d.Type() == gpu.TypeMonitor {
		return nil
	}
	at := gpu.PoolDevice{Pool: o.Layout.Of(d.Parent()).Pool(o.NodeName, d.Parent()), Device: d.Name()}
	for i := range o.Taints {
		if r := &o.Taints[i]; r.applies(at, d) {
			effect := r.Effect
			if effect == "" {
				effect = resourceapi.DeviceTaintEffectNoSchedule
			}
			taint := resourceapi.DeviceTaint{Key: o.DriverName + "/" + r.Name, Value: r.Value, Effect: effect}
			if !r.TimeAdded.IsZero() {
				taint.TimeAdded = r.TimeAdded.DeepCopy()
			}
			taints = append(taints, taint)
		}
	}
	return taints
}
