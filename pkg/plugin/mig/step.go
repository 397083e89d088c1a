package mig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Step makes one MIG device. It is a prepare.Step of kind claim.StepMIG.
type Step struct {
	// Driver returns the open driver; gpu.ErrDriverNotLoaded without one.
	Driver func() (gpu.MIGDriver, error)
	// Load identifies the present load of the driver, empty if that is not known. May be nil.
	Load func() string
}

// made is the result of a step. Without UUID it lacks a compute instance, or none is known.
type made struct {
	gpu.MIGIdentity
	// Load is the load of the driver in which it was made: no instance outlives it. Empty if it was not known.
	Load string `json:"load,omitempty"`
	// Fills: the compute instance has all of the GPU instance. Earlier versions did not say, and compared memory slices.
	Fills bool `json:"fills,omitempty"`
}

// lost returns whether the driver was loaded again since, which removed all instances: a present instance is an administrator's, even if
// its ids and UUID are the same.
func (m *made) lost(load string) bool {
	return m != nil && m.Load != "" && load != "" && m.Load != load
}

func (s Step) load() string {
	if s.Load == nil {
		return ""
	}
	return s.Load()
}

// Check refuses a placement that is not free. Nothing was promised yet, so whatever is there is another owner's.
func (s Step) Check(ctx context.Context, step checkpoint.Step) error {
	wanted, driver, err := s.open(step)
	if err != nil {
		return err
	}
	instances, err := driver.Occupied(ctx, step.Target)
	if err != nil {
		return fmt.Errorf("inspecting the instances of GPU %s: %w", step.Target, err)
	}
	for i := range instances {
		if instances[i].Placement.Overlaps(wanted.Placement) {
			return fmt.Errorf("GPU instance %d, which belongs to no claim, is at %s of GPU %s: %w; the administrator can remove it "+
				"with nvidia-smi mig -dci and -dgi, or keep it: then it is advertised as a device of its own", instances[i].ID,
				extent(instances[i].Placement), step.Target, gpu.ErrInUse)
		}
	}
	return nil
}

// nothing is the id if the driver refused to make anything: no instance has that id, so Undo finds none.
const nothing = -1

// Do makes the GPU instance and its compute instance. With an error it also returns the part that it has made by then.
func (s Step) Do(ctx context.Context, step checkpoint.Step) (json.RawMessage, error) {
	wanted, driver, err := s.open(step)
	if err != nil {
		return nil, err
	}
	var m made
	if m.GPUInstance, err = driver.CreateInstance(ctx, step.Target, wanted.Profile, wanted.Placement); err != nil {
		err = fmt.Errorf("creating GPU instance %s at %s: %w", wanted.Name, extent(wanted.Placement), err)
		if !errors.Is(err, gpu.ErrInUse) {
			return nil, err
		}
		// Another program took the place since Check. Its instance may seem ours, and is not.
		m.GPUInstance = nothing
		return encode(m), err
	}
	m.Load = s.load()
	compute, err := driver.CreateComputeInstance(ctx, step.Target, m.GPUInstance)
	if err != nil {
		return encode(m), fmt.Errorf("creating the compute instance of GPU instance %d (%s): %w", m.GPUInstance, wanted.Name, err)
	}
	m.ComputeInstance, m.UUID, m.Fills = compute.ID, compute.UUID, true
	return encode(m), nil
}

func encode(m made) json.RawMessage {
	raw, _ := json.Marshal(m) // numbers, texts and a bool
	return raw
}

// Identify reports the identity of the MIG device that Do made.
func (Step) Identify(made json.RawMessage) (id gpu.MIGIdentity, err error) {
	if err := json.Unmarshal(made, &id); err != nil {
		return id, fmt.Errorf("reading the created instances: %w", err)
	}
	return id, nil
}

// Verify reports whether the MIG device that Do made is still there: a driver that is unloaded takes all instances with it.
// gpu.ErrNotFound: it is gone, or has lost its compute instance. A device that an administrator has made again just as it was counts as
// the same. A GPU that does not answer is another error, as its instances may be in use.
func (s Step) Verify(ctx context.Context, step checkpoint.Step) error {
	wanted, driver, err := s.open(step)
	if err != nil {
		return err
	}
	m, err := decodeMade(step)
	if err != nil {
		return err
	}
	var ours *gpu.Instance
	if !m.lost(s.load()) {
		ours, err = inspect(ctx, driver, step.Target, wanted, m, true)
	}
	if errors.Is(err, gpu.ErrNotFound) {
		err = fmt.Errorf("%w (%v)", gpu.ErrTimeout, err) //nolint:errorlint // the GPU is not there, which says nothing of the instance
	}
	if err != nil {
		return err
	}
	if ours == nil || len(ours.Compute) == 0 {
		return fmt.Errorf("MIG device %s is not on GPU %s any more: %w", m.UUID, step.Target, gpu.ErrNotFound)
	}
	return nil
}

// open reads the step and finds the driver.
func (s Step) open(step checkpoint.Step) (claim.MIG, gpu.MIGDriver, error) {
	wanted, err := claim.ParseMIG(step.Args)
	if err != nil {
		return wanted, nil, err
	}
	driver, err := s.Driver()
	return wanted, driver, err
}

// decodeMade returns nil for a step that was never known to be done. If making it failed half-way there is no UUID.
func decodeMade(step checkpoint.Step) (*made, error) {
	if len(step.Made) == 0 {
		return nil, nil
	}
	var m made
	if err := json.Unmarshal(step.Made, &m); err != nil {
		return nil, fmt.Errorf("reading the created instances: %w", err)
	}
	return &m, nil
}

// extent words a placement: "memory slices 4-7".
func extent(p gpu.Placement) string {
	if p.Size == 1 {
		return fmt.Sprintf("memory slice %d", p.Start)
	}
	return fmt.Sprintf("memory slices %d-%d", p.Start, p.Start+p.Size-1)
}
