package gpu

import "slices"

// Debt is what an earlier claim left on a GPU and what could not be undone yet. It keeps new claims from what it occupies.
type Debt struct {
	// GPU is the one it is on.
	GPU UUID
	// Uses are what is left there; none: the debt is of the whole GPU.
	Uses []Use
}

// Equal compares two debts. The order of what is left counts.
func (d Debt) Equal(other Debt) bool { return d.GPU == other.GPU && slices.Equal(d.Uses, other.Uses) }

// Blocks tells whether a claim that gets the device would meet what was left. Looking is never blocked.
func (d Debt) Blocks(device Device) bool {
	if device.Parent().UUID != d.GPU {
		return false
	}
	left := d.Uses
	if len(left) == 0 {
		left = []Use{{Type: TypeGPU}}
	}
	wanted := next(device)
	return slices.ContainsFunc(left, func(u Use) bool { return Excludes(u, wanted) })
}
