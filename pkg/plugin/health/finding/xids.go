package finding

import "slices"

// XIDs decide which codes of XID errors taint a GPU. The zero value leaves the decision to the driver and to the tables.
type XIDs struct {
	// Taint contains the codes that always taint (true), and the codes that never do (false).
	Taint map[uint64]bool
	// All is the decision about all other codes; nil: the driver's and the tables'.
	All *bool
}

// Rules are the settings of the findings.
type Rules struct {
	XIDs XIDs
	// NoExecute are the keys whose blocking findings also evict pods.
	NoExecute map[Key]bool
}

// effect is the effect of a finding that blocks.
func (r Rules) effect(key Key) Effect {
	if r.NoExecute[key] {
		return NoExecute
	}
	return NoSchedule
}

// hardware are the codes of errors after which a GPU does not work reliably.
var hardware = []uint64{46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 144, 145, 146, 147, 148, 149, 150, 155, 156, 158, 160, 162}

// harmless are the codes of errors that end with the application, and of reports without an error: the codes for which NVIDIA's catalog of
// XID errors (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) has the immediate action RESTART_APP or IGNORE. Any tenant can
// cause some of them. 45 and 109 are in addition, which NVIDIA's device plugin ignores (internal/rm/health.go), and 154, after which a poll
// reads the recovery action.
var harmless = []codes{
	{8, 8}, {11, 11}, {13, 14}, {25, 25}, {31, 32}, {37, 41}, {43, 45}, {60, 60}, {63, 63}, {66, 72}, {75, 77}, {80, 80}, {82, 86}, {88, 89}, {92, 94},
	{96, 109}, {121, 121}, {126, 135}, {137, 137}, {139, 139}, {141, 141}, {152, 154}, {157, 157}, {161, 161},
}

// codes are all codes from the first to the last.
type codes struct{ first, last uint64 }

func isHarmless(code uint64) bool {
	return slices.ContainsFunc(harmless, func(c codes) bool { return c.first <= code && code <= c.last })
}

// verdict is the decision about an event.
type verdict int

const (
	ignored verdict = iota
	tainting
	unknown
)

// decide decides about a code; driver reports whether the driver says by itself that a GPU needs a repair.
func (x XIDs) decide(code uint64, driver bool) verdict {
	taint, listed := x.Taint[code]
	switch {
	case !listed && x.All != nil:
		taint, listed = *x.All, true
	case !listed && !driver && slices.Contains(hardware, code):
		taint, listed = true, true
	}
	switch {
	case taint:
		return tainting
	case listed || driver || isHarmless(code):
		return ignored
	default:
		return unknown
	}
}
