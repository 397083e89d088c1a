package inventory

import (
	"fmt"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// ComputeModes returns the open driver, gpu.ErrDriverNotLoaded if no driver is open.
func (i *Inventory) ComputeModes() (gpu.ComputeModes, error) {
	session := i.open.Load()
	if session == nil {
		return nil, fmt.Errorf("setting the compute mode of a GPU: %w", gpu.ErrDriverNotLoaded)
	}
	return *session, nil
}
