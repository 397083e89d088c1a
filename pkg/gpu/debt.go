package gpu

import "slices"

// Debt is what an earlier claim left on a GPU and what could not be undone yet. It keeps new claims from what it occupies.
type Debt struct {
	// GPU is the one it is on.
	GPU UUID
	// Placements are where instances are left; none: the debt is of the whole GPU.
	Placements []Placement
	// MediaExtensions: one of these instances owns the engines that a GPU has for one instance only.
	MediaExtensions bool
}

// Blocks tells whether a claim that gets the device would meet what was left: the device is the GPU itself, or it cannot be
// beside one of the instances. Looking is never blocked.
func (d Debt) Blocks(device Device) bool {
	if device.Parent().UUID != d.GPU {
		return false
	}
	switch device := device.(type) {
	case Monitor:
		return false
	case MIGDevice:
		return len(d.Placements) == 0 || slices.ContainsFunc(d.Placements, device.Placement.Overlaps) ||
			d.MediaExtensions && device.Profile.HasMediaExtensions()
	default:
		return true
	}
}
