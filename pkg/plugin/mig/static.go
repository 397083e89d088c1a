package mig

import (
	"context"
	"errors"
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Static finds MIG devices that an administrator made. It is a prepare.Static.
type Static struct {
	// Driver returns the open driver; gpu.ErrDriverNotLoaded without one.
	Driver func() (gpu.MIGDriver, error)
}

// There costs six calls of the driver, however many instances the GPU has. An instance that an administrator has made again just as it
// was counts as the same.
func (s Static) There(ctx context.Context, id gpu.UUID, m *checkpoint.MIG) error {
	driver, err := s.Driver()
	if err != nil {
		return err
	}
	instance, err := driver.Instance(ctx, id, m.Identity.GPUInstance, m.Identity.UUID)
	if errors.Is(err, gpu.ErrNotFound) {
		err = fmt.Errorf("%w (%v)", gpu.ErrTimeout, err) //nolint:errorlint // the GPU is not there, which says nothing of the instance
	}
	if err != nil {
		return fmt.Errorf("finding MIG device %s on GPU %s: %w", m.Identity.UUID, id, err)
	}
	if instance == nil || instance.Profile != m.Profile || instance.Placement != m.Placement ||
		!instance.Filled() || instance.Compute[0].ID != m.Identity.ComputeInstance {
		return fmt.Errorf("MIG device %s is not on GPU %s any more: %w", m.Identity.UUID, id, gpu.ErrNotFound)
	}
	return nil
}
