package gpu

import "slices"

// PendingCleanup lists the effects of an earlier claim on a GPU that could not be undone yet. New claims do not get the parts that these
// occupy.
type PendingCleanup struct {
	// GPU is the one it is on.
	GPU UUID
	// Uses are the parts that they occupy there; none: the whole GPU has to be cleaned up.
	Uses []Use
}

// Equal compares two of them. The order of the uses counts.
func (p PendingCleanup) Equal(other PendingCleanup) bool {
	return p.GPU == other.GPU && slices.Equal(p.Uses, other.Uses)
}

// Blocks reports whether a pending cleanup would affect a claim to which the device is allocated. A monitor device is never affected.
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
