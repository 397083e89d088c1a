package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Effect is a kind of effect on the hardware that tests can observe there.
type Effect interface {
	prepare.Finder
	// Present reports whether the GPU shows the effect, independently of records.
	Present(g *model.GPUSnapshot) bool
}

// Effects are the kinds of effects in plans.
var Effects = map[string]func(*Machine) Effect{
	"accounting": func(m *Machine) Effect {
		return setting{machine: m, knob: accounting, value: 1, under: []knob{persistence}}
	},
	"persistence": func(m *Machine) Effect { return setting{machine: m, knob: persistence, value: 1} },
}

// AllEffects are all effects, in the order of plans.
var AllEffects = []string{"accounting", "persistence"}

// setting is the effect of a changed setting. It refuses a setting that is changed already: either an earlier effect was not undone, or
// another claim uses the same GPU.
type setting struct {
	machine *Machine
	knob    knob
	value   uint32
	// under lists the effects that depend on it and must be undone first, like a compute instance before its GPU instance.
	under []knob
}

// These errors must not occur, so they are not gpu.ErrInUse, which is retried.
var (
	errChanged   = errors.New("the setting was changed before")
	errDependent = errors.New("another effect depends on it")
)

// Do changes the setting and returns its previous value.
func (s setting) Do(ctx context.Context, step checkpoint.Step) (json.RawMessage, error) {
	was, err := s.machine.hardware.get(ctx, step.Target, s.knob)
	if err != nil {
		return nil, err
	}
	if was != 0 {
		return nil, fmt.Errorf("the setting is %d: %w", was, errChanged)
	}
	if err := s.machine.hardware.set(ctx, step.Target, s.knob, s.value); err != nil {
		return nil, err
	}
	return json.Marshal(was)
}

// Undo restores the setting.
func (s setting) Undo(ctx context.Context, step checkpoint.Step) error {
	var was uint32
	if len(step.Made) > 0 {
		if err := json.Unmarshal(step.Made, &was); err != nil {
			return fmt.Errorf("reading the recorded effect: %w", err)
		}
	}
	for _, above := range s.under {
		if value, err := s.machine.hardware.get(ctx, step.Target, above); err != nil || value != 0 {
			return errors.Join(err, errDependent)
		}
	}
	return s.machine.hardware.set(ctx, step.Target, s.knob, was)
}

// Find returns the GPUs whose setting shows this effect.
func (s setting) Find(ctx context.Context) (found []checkpoint.Step, err error) {
	for _, id := range s.machine.gpus {
		value, err := s.machine.hardware.get(ctx, id, s.knob)
		if err != nil {
			return nil, err
		}
		if value == s.value {
			found = append(found, checkpoint.Step{Target: id})
		}
	}
	return found, nil
}

// Names: a GPU has each setting once.
func (setting) Names(_, _ checkpoint.Step) bool { return true }

// Present reports whether the setting is changed.
func (s setting) Present(g *model.GPUSnapshot) bool {
	if s.knob == persistence {
		return g.Persistence
	}
	return g.Accounting
}
