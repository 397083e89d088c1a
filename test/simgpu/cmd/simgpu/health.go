package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

func resetCommand() *cobra.Command {
	var root string
	c := &cobra.Command{
		Use: "reset GPU", Short: "reset a GPU, by its number in PCI order or its UUID, as nvidia-smi -r does", Args: cobra.ExactArgs(1),
		Long: `Reset a GPU: recovery action, pending row remapping and page retirement, loss and hanging calls end, a pending MIG mode is in
force, MIG devices are destroyed. It is refused while a process has the GPU attached: a CUDA context, or any session of NVML.`,
		RunE: func(_ *cobra.Command, args []string) error {
			gpu, err := ordinalOf(root, args[0])
			if err != nil {
				return err
			}
			_, err = send(root, daemon.Command{Reset: &gpu})
			return err
		},
	}
	rootFlag(c, &root)
	return c
}

// ordinalOf finds a GPU by its number or UUID.
func ordinalOf(root, name string) (int, error) {
	if number, err := strconv.Atoi(name); err == nil {
		return number, nil
	}
	result, err := send(root, daemon.Command{State: true})
	if err != nil {
		return 0, err
	}
	for _, g := range result.State.GPUs {
		if g.UUID == name {
			return g.Ordinal, nil
		}
	}
	return 0, fmt.Errorf("finding GPU %q: the node has no GPU with this UUID", name)
}

// healthCommands are injections that change the health of a GPU until it is reset, or the injection is repeated with another value.
func (o *injectOptions) healthCommands() []*cobra.Command {
	return []*cobra.Command{
		o.health("recovery-action N", "the driver asks for a repair, by NVML's number: 0 none, 1 a reset, 2 a reboot",
			func(h *daemon.Health, text string) error {
				action, err := number[model.RecoveryAction](text, 32)
				h.Action = &action
				return err
			}),
		o.health("row-remap pending|failure|none", "a row of memory will be remapped at the next reset, or could not be remapped",
			func(h *daemon.Health, text string) error {
				pending, failure := text == "pending", text == "failure"
				if !pending && !failure && text != "none" {
					return fmt.Errorf("%q: supported values: pending, failure, none", text)
				}
				if !failure {
					h.RowRemapPending = &pending
				}
				if !pending {
					h.RowRemapFailure = &failure
				}
				return nil
			}),
		o.health("fabric N", "the registration with the NVSwitch fabric, by NVML's number: 1 not started, 2 in progress, 3 completed",
			func(h *daemon.Health, text string) error {
				state, err := number[model.FabricState](text, 8)
				h.Fabric = &state
				return err
			}),
		plain("retired-pages", "a page of memory will be retired at the next reset", func(c *cobra.Command) error {
			pending := true
			return o.sendHealth(c, daemon.Health{RetirementPending: &pending})
		}),
	}
}

func (o *injectOptions) health(use, short string, read func(*daemon.Health, string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var health daemon.Health
			if err := read(&health, args[0]); err != nil {
				return fmt.Errorf("reading %s: %w", c.Name(), err)
			}
			return o.sendHealth(c, health)
		},
	}
}

func (o *injectOptions) sendHealth(c *cobra.Command, health daemon.Health) error {
	if o.gpu < 0 {
		return errors.New("changing the health of a GPU: --gpu is missing")
	}
	health.GPU = o.gpu
	return o.send(c, daemon.Command{Health: &health})
}

// number reads a number of that many bits.
func number[T ~uint8 | ~uint32](text string, bits int) (T, error) {
	value, err := strconv.ParseUint(text, 10, bits)
	return T(value), err
}
