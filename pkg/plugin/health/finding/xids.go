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

// harmless are the codes of errors that an application causes or that end with it, and of reports without an error: 63 and 92 are about
// memory that the flags of row remapping show, 154 is about the recovery action that a poll reads.
var harmless = []uint64{8, 11, 13, 31, 32, 43, 45, 63, 68, 69, 92, 94, 109, 121, 137, 154}

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
	case listed || driver || slices.Contains(harmless, code):
		return ignored
	default:
		return unknown
	}
}
