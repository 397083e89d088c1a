package gpu

import "slices"

// PendingCleanup is what an earlier claim left on a GPU and could not be undone yet. New claims do not get what it occupies.
type PendingCleanup struct {
	// GPU is the one it is on.
	GPU UUID
	// Uses are what is left there; none: the whole GPU has to be cleaned up.
	Uses []Use
}

// Equal compares two of them. The order of what is left counts.
func (p PendingCleanup) Equal(other PendingCleanup) bool {
	return p.GPU == other.GPU && slices.Equal(p.Uses, other.Uses)
}

// Blocks reports whether a claim to which the device is allocated would be affected by what was left. A monitor device never is.
func (p PendingCleanup) Blocks(device Device) bool {
	if device.Parent().UUID != p.GPU {
		return false
	}
	left := p.Uses
	if len(left) == 0 {
		left = []Use{{Type: TypeGPU}}
	}
	wanted := next(device)
	return slices.ContainsFunc(left, func(u Use) bool { return Excludes(u, wanted) })
}
