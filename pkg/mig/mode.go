package mig

import (
	"context"
	"errors"
	"fmt"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Mode brings a GPU's MIG mode about. It is a prepare.Need of the kinds claim.NeedMIG and claim.NeedWhole: a slice needs the mode on, a
// whole GPU needs it off, as a GPU in MIG mode runs no program without an instance.
type Mode struct {
	// Driver returns the open driver; gpu.ErrDriverNotLoaded without one.
	Driver func() (Driver, error)
	// Changed is told when a mode has changed, before the claim gets anything: the GPU's minor number may be another one now. May be
	// nil.
	Changed func(ctx context.Context)
}

// Meet costs one read where the mode is right already, and one look at the instances where it turns the mode off.
func (m Mode) Meet(ctx context.Context, need claim.Need) error {
	driver, err := m.Driver()
	if err != nil {
		return err
	}
	on := need.Kind == claim.NeedMIG
	mode, err := driver.MIGMode(ctx, need.Target)
	if err != nil {
		return fmt.Errorf("reading the MIG mode of GPU %s: %w", need.Target, err)
	}
	if mode.Enabled == on {
		return nil
	}
	if mode.NeedsReset {
		return resetNeeded(need.Target, on)
	}
	if err = leaves(ctx, driver, need.Target, on); err == nil {
		err = driver.SetMIGMode(ctx, need.Target, on)
	}
	switch {
	case errors.Is(err, gpu.ErrInUse):
		return fmt.Errorf("turning %s the MIG mode: something on the node uses GPU %s: %w; stop the process (nvidia-smi and fuser -v /dev/nvidia* "+
			"show it), or remove the GPU instance (nvidia-smi mig -lgi shows it)", word(on), need.Target, err)
	case err != nil:
		return fmt.Errorf("turning %s the MIG mode of GPU %s: %w", word(on), need.Target, err)
	}
	if m.Changed != nil {
		m.Changed(ctx)
	}
	return nil
}

// leaves returns gpu.ErrInUse for a GPU that would lose instances: an administrator may have made them since the last look. That the driver
// refuses to take them away is not relied upon.
func leaves(ctx context.Context, driver Driver, id gpu.UUID, on bool) error {
	if on {
		return nil
	}
	instances, err := driver.Occupied(ctx, id)
	if err != nil {
		return fmt.Errorf("looking at its instances: %w", err)
	}
	if len(instances) > 0 {
		return fmt.Errorf("GPU instance %d at %s would go: %w", instances[0].ID, extent(instances[0].Placement), gpu.ErrInUse)
	}
	return nil
}

// resetNeeded tells the administrator what Prism does not do.
func resetNeeded(id gpu.UUID, on bool) error {
	flag := 0
	if on {
		flag = 1
	}
	return &gpu.UnsupportedError{
		Feature: fmt.Sprintf("turning %s the MIG mode of GPU %s, which changes only with a reset,", word(on), id),
		Needs: fmt.Sprintf("the administrator, who drains the node and runs nvidia-smi -i %[1]s -mig %[2]d and nvidia-smi --gpu-reset -i %[1]s",
			id, flag),
	}
}

func word(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
