package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Effect is a kind of hardware effect that can be looked for.
type Effect interface {
	prepare.Step
	// Present tells whether the GPU has the effect now, whoever made it.
	Present(id gpu.UUID) (bool, error)
}

// Effects are the kinds that plans can have.
var Effects = map[string]func(*Machine) Effect{
	"computeMode": func(m *Machine) Effect {
		return setting{machine: m, call: "nvmlDeviceSetComputeMode", knob: computeMode, value: exclusiveProcess, under: &timeSlice}
	},
	"timeSlice": func(m *Machine) Effect {
		return setting{machine: m, call: "nvmlDeviceSetTimeSlice", knob: timeSlice, value: longSlice}
	},
}

// AllEffects is the order in which plans have them.
var AllEffects = []string{"computeMode", "timeSlice"}

const (
	exclusiveProcess = uint32(model.ComputeExclusiveProcess)
	longSlice        = uint32(model.MaxTimeSlice)
)

// knob is one setting of a GPU; zero is what the driver sets.
type knob struct {
	get func(*model.Session, model.Handle) (uint32, error)
	set func(*model.Session, model.Handle, uint32) error
}

var (
	computeMode = knob{
		get: func(s *model.Session, h model.Handle) (uint32, error) {
			mode, err := s.ComputeMode(h)
			return uint32(mode), err
		},
		set: func(s *model.Session, h model.Handle, v uint32) error {
			return s.SetComputeMode(h, model.ComputeMode(v), true)
		},
	}
	timeSlice = knob{
		get: func(s *model.Session, h model.Handle) (uint32, error) {
			slice, err := s.TimeSlice(h)
			return uint32(slice), err
		},
		set: func(s *model.Session, h model.Handle, v uint32) error {
			return s.SetTimeSlice(h, model.TimeSlice(v), true)
		},
	}
)

// setting is the effect of a knob that is turned. It refuses a knob that somebody turned before: whose effect was not undone,
// or who has the same GPU.
type setting struct {
	machine *Machine
	call    string
	knob    knob
	value   uint32
	// under is what is made on top of it and must be undone first, as a compute instance before its GPU instance. May be nil.
	under *knob
}

// Do turns the knob and says where it stood.
func (s setting) Do(ctx context.Context, step checkpoint.Step) (json.RawMessage, error) {
	session, handle, err := s.open(ctx, step.Target)
	if err != nil {
		return nil, err
	}
	was, err := s.knob.get(session, handle)
	if err != nil {
		return nil, translated(err)
	}
	if was != 0 {
		return nil, fmt.Errorf("the knob stands at %d: %w", was, errTurned)
	}
	if err := s.knob.set(session, handle, s.value); err != nil {
		return nil, translated(err)
	}
	return json.Marshal(was)
}

// They are never expected, and therefore no gpu.ErrInUse, which would be waited for.
var (
	errTurned  = errors.New("somebody turned it before")
	errBuiltOn = errors.New("another effect stands on it")
)

// Undo turns the knob back.
func (s setting) Undo(ctx context.Context, step checkpoint.Step) error {
	session, handle, err := s.open(ctx, step.Target)
	if err != nil {
		return err
	}
	var was uint32
	if len(step.Made) > 0 {
		if err := json.Unmarshal(step.Made, &was); err != nil {
			return fmt.Errorf("reading what was made: %w", err)
		}
	}
	if s.under != nil {
		if above, err := s.under.get(session, handle); err != nil || above != 0 {
			return errors.Join(translated(err), errBuiltOn)
		}
	}
	return translated(s.knob.set(session, handle, was))
}

// Present tells whether the knob is turned.
func (s setting) Present(id gpu.UUID) (bool, error) {
	session, handle, _, err := s.machine.gpu(id)
	if err != nil {
		return false, err
	}
	value, err := s.knob.get(session, handle)
	return value != 0, translated(err)
}

// callTime bounds one call of the driver, as the product's adapter does.
const callTime = 50 * time.Millisecond

func (s setting) open(ctx context.Context, id gpu.UUID) (*model.Session, model.Handle, error) {
	session, handle, ordinal, err := s.machine.gpu(id)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, gpu.ErrTimeout)
	defer cancel()
	return session, handle, translated(s.machine.Node.Faults.Pass(ctx, s.call, ordinal))
}

// gpu opens the driver for one GPU.
func (m *Machine) gpu(id gpu.UUID) (*model.Session, model.Handle, int, error) {
	for _, identity := range m.Node.Identities() {
		if identity.UUID != string(id) {
			continue
		}
		session, err := m.Node.Open("", []int{identity.Minor})
		if err != nil {
			return nil, 0, 0, translated(err)
		}
		handle, err := session.ByUUID(identity.UUID)
		return session, handle, identity.Ordinal, translated(err)
	}
	return nil, 0, 0, fmt.Errorf("GPU %s: %w", id, gpu.ErrNotFound)
}

// translated words the model's codes as the product's adapter does.
func translated(err error) error {
	for code, kind := range map[model.Return]error{
		model.DriverNotLoaded: gpu.ErrDriverNotLoaded, model.InUse: gpu.ErrInUse, model.Timeout: gpu.ErrTimeout, model.GPUIsLost: gpu.ErrLost,
	} {
		if errors.Is(err, code) {
			return fmt.Errorf("%w (%w)", kind, err)
		}
	}
	return err
}
