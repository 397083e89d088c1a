// Package finding decides by readings and events which problems a GPU has, and since when. It computes: the same input has the same result.
package finding

import (
	"cmp"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Effect is the effect of a taint on new claims, as in the resource API.
type Effect string

// The effects.
const (
	None       Effect = "None"
	NoSchedule Effect = "NoSchedule"
	NoExecute  Effect = "NoExecute"
)

// Key is the key of a finding's taint below the driver's domain.
type Key string

// The keys. GPULost, XID and Unmonitored are also keys of NVIDIA's driver.
const (
	GPULost        Key = "gpu-lost"
	RecoveryAction Key = "recovery-action"
	XID            Key = "xid"
	Memory         Key = "memory"
	Fabric         Key = "fabric"
	NodeCondition  Key = "node-condition"
	Maintenance    Key = "maintenance"
	Unmonitored    Key = "unmonitored"
)

// BlockingKeys are the keys of findings that may keep new claims from a GPU.
var BlockingKeys = []Key{GPULost, RecoveryAction, XID, Memory, Fabric, NodeCondition, Maintenance}

// The values of GPULost.
const (
	Lost       = "lost"
	Hung       = "hung"
	DeviceNode = "device-node"
)

// The values of RecoveryAction; a later driver may have others, which are "unknown-<n>".
const (
	GPUReset          = "gpu-reset"
	NodeReboot        = "node-reboot"
	DrainP2P          = "drain-p2p"
	DrainAndReset     = "drain-and-reset"
	RecoverIMEXDomain = "recover-imex-domain"
	BusReset          = "bus-reset"
	SystemReboot      = "system-reboot"
)

// The values of Memory and of Fabric.
const (
	RowRemapFailure   = "row-remap-failure"
	RowRemapPending   = "row-remap-pending"
	RetirementPending = "retirement-pending"
	NotReady          = "not-ready"
)

// Finding is a problem of a physical GPU, or its maintenance. It concerns every device of the GPU.
type Finding struct {
	GPU gpu.UUID
	Key Key
	// Value is the value of the taint; may be empty.
	Value  string
	Effect Effect
	// Begin is when it began, in whole seconds.
	Begin time.Time
	// Note is the reason that an administrator gave, for Maintenance, or the path of the missing device node; empty for other findings.
	Note string
	// Flapping: it has returned too often, and stays until the GPU is healed or the node boots.
	Flapping bool
}

// Blocks reports whether the GPU gets no new claims because of it.
func (f *Finding) Blocks() bool { return f.Effect == NoSchedule || f.Effect == NoExecute }

// Unhealthy reports whether the GPU needs a repair because of it: it blocks, and is no maintenance.
func (f *Finding) Unhealthy() bool { return f.Blocks() && f.Key != Maintenance }

// Taints returns one finding of each key of a GPU, as a device has one taint of a key: the finding with the strongest effect, and of equal ones
// the first that began. The API server would store several, but each would count against the 16 taints of a device.
func Taints(all []Finding) []Finding {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Key, b.Key), cmp.Compare(b.strength(), a.strength()), a.Begin.Compare(b.Begin), cmp.Compare(a.Value, b.Value))
	})
	return slices.CompactFunc(sorted, func(a, b Finding) bool { return a.GPU == b.GPU && a.Key == b.Key })
}

func (f *Finding) strength() int {
	return slices.Index([]Effect{None, NoSchedule, NoExecute}, f.Effect)
}
