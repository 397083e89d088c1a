package inventory

import (
	"fmt"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// MemoryLimiter returns the open driver, gpu.ErrDriverNotLoaded if no driver is open.
func (i *Inventory) MemoryLimiter() (gpu.MemoryLimiter, error) {
	session := i.open.Load()
	if session == nil {
		return nil, fmt.Errorf("limiting GPU memory: %w", gpu.ErrDriverNotLoaded)
	}
	return *session, nil
}
