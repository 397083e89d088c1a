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
}

// Meet costs one read where the mode is right already.
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
	err = driver.SetMIGMode(ctx, need.Target, on)
	switch {
	case errors.Is(err, gpu.ErrInUse):
		return fmt.Errorf("turning MIG mode %s: GPU %s is used by a process on the node: %w; stop it (nvidia-smi and fuser /dev/nvidia* show it)",
			word(on), need.Target, err)
	case err != nil:
		return fmt.Errorf("turning MIG mode %s on GPU %s: %w", word(on), need.Target, err)
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
		Feature: fmt.Sprintf("turning MIG mode %s on GPU %s, whose mode changes only with a reset,", word(on), id),
		Needs:   fmt.Sprintf("the administrator: drain the node, run nvidia-smi -i %s -mig %d and nvidia-smi --gpu-reset", id, flag),
	}
}

func word(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
