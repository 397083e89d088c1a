// Package finding decides by readings and events which problems a GPU has, and since when. It computes: the same input has the same result.
package finding

import (
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

// Finding is a problem of a physical GPU, or its maintenance. It concerns every device of the GPU.
type Finding struct {
	GPU gpu.UUID
	Key Key
	// Value is the value of the taint; may be empty.
	Value  string
	Effect Effect
	// Begin is when it began.
	Begin time.Time
	// Note is the reason that an administrator gave, for Maintenance; empty for other keys.
	Note string
}

// Blocks reports whether the GPU gets no new claims because of it.
func (f *Finding) Blocks() bool { return f.Effect == NoSchedule || f.Effect == NoExecute }
