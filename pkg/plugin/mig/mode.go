package mig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Mode brings a GPU's MIG mode about. It is a prepare.Precondition of the kinds claim.PreconditionMIGMode and
// claim.PreconditionNoMIGMode: a MIG device needs the mode on, a whole GPU needs it off, as a GPU in MIG mode runs no program without an
// instance.
type Mode struct {
	// Driver returns the open driver; gpu.ErrDriverNotLoaded without one.
	Driver func() (gpu.MIGDriver, error)
	// Shown returns the GPU's MIG mode at the last read of the data for CDI specs; false if that lacks the GPU.
	Shown func(id gpu.UUID) (gpu.MIGMode, bool)
	// Changed reads that data again when a mode has changed, before the claim gets anything: the GPU's minor number may be another one
	// now. It uses its own context: all claims rely on the read, so it must not end with one call.
	Changed func(ctx context.Context) error
}

// changedTime is the time limit of Changed, also when the caller's time is over.
const changedTime = 10 * time.Second

// Ensure costs one read if the mode is right already, and one listing of the instances if the mode is turned off. If the mode has
// changed, by Prism or by other means, all GPUs are inspected once; as long as that fails the error is a transient *claim.Refusal.
func (m Mode) Ensure(ctx context.Context, need claim.Precondition) error {
	driver, err := m.Driver()
	if err != nil {
		return err
	}
	on := need.Kind == claim.PreconditionMIGMode
	mode, err := driver.MIGMode(ctx, need.Target)
	if err != nil {
		return fmt.Errorf("reading the MIG mode of GPU %s: %w", need.Target, err)
	}
	if mode.Enabled == on {
		return m.inspected(ctx, need.Target, on)
	}
	if mode.NeedsReset {
		return resetNeeded(need.Target, on)
	}
	// Else a mode that changes back would go unnoticed.
	if err := m.inspected(ctx, need.Target, mode.Enabled); err != nil {
		return err
	}
	if err = leaves(ctx, driver, need.Target, on); err == nil {
		err = driver.SetMIGMode(ctx, need.Target, on)
	}
	switch {
	case errors.Is(err, gpu.ErrInUse):
		return fmt.Errorf("turning %s the MIG mode: something on the node uses GPU %s: %w; stop the process (nvidia-smi and fuser -v /dev/nvidia* "+
			"show it), or remove the GPU instance (nvidia-smi mig -lgi shows it)", word(on), need.Target, err)
	case err != nil:
		_ = m.inspect(ctx) // it may have changed, and have been changed back; the next claim finds out whether it has
		return fmt.Errorf("turning %s the MIG mode of GPU %s: %w", word(on), need.Target, err)
	}
	return m.inspected(ctx, need.Target, on)
}

// inspected ensures that the known state of the GPU was read in its present MIG mode. A process that failed to do so after a change may
// have exited, and others change modes too, so only that is relied upon.
func (m Mode) inspected(ctx context.Context, id gpu.UUID, on bool) error {
	if m.shows(id, on) {
		return nil
	}
	err := m.inspect(ctx)
	if err == nil && !m.shows(id, on) {
		err = fmt.Errorf("the GPU does not answer, or its mode has changed again: %w", gpu.ErrNotFound)
	}
	if err == nil {
		return nil
	}
	return &claim.Refusal{
		Cause: fmt.Sprintf("GPU %s could not be inspected since its MIG mode was turned %s, and its device node may have another number now: %v",
			id, word(on), err),
		Fix: "check on the node that nvidia-smi -L answers and lists it", Transient: true, Err: err,
	}
}

func (m Mode) shows(id gpu.UUID, on bool) bool {
	mode, known := m.Shown(id)
	return known && mode.Enabled == on
}

func (m Mode) inspect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changedTime)
	defer cancel()
	return m.Changed(ctx)
}

// leaves returns gpu.ErrInUse for a GPU that would lose instances: an administrator may have made them since the last inspection. The
// driver's refusal to remove them is not relied upon.
func leaves(ctx context.Context, driver gpu.MIGDriver, id gpu.UUID, on bool) error {
	if on {
		return nil
	}
	instances, err := driver.Occupied(ctx, id)
	if err != nil {
		return fmt.Errorf("inspecting its instances: %w", err)
	}
	if len(instances) > 0 {
		return fmt.Errorf("GPU instance %d at %s would go: %w", instances[0].ID, extent(instances[0].Placement), gpu.ErrInUse)
	}
	return nil
}

// resetNeeded says how the administrator resets the GPU, as Prism does not.
func resetNeeded(id gpu.UUID, on bool) error {
	flag := 0
	if on {
		flag = 1
	}
	return &gpu.UnsupportedError{
		Feature: fmt.Sprintf("turning %s the MIG mode of GPU %s, which changes only with a reset,", word(on), id),
		Needs: fmt.Sprintf("an administrator to drain the node and to run nvidia-smi -i %[1]s -mig %[2]d and nvidia-smi --gpu-reset -i %[1]s",
			id, flag),
	}
}

func word(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
