package port

import (
	"context"
	"errors"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// The fields that a reading of the health contains.
const (
	fieldRetirementPending = 31
	fieldRowRemapPending   = 144
	fieldRowRemapFailure   = 145
	fieldRecoveryAction    = 230
)

// The driver branches from which NVML has the two functions that read the fabric.
const (
	fabricInfoFrom  = 525
	fabricInfoVFrom = 550
)

// Health reads the health of a GPU in one call; in two if the board is part of a fabric.
func (s *Session) Health(ctx context.Context, g *gpu.GPU) gpu.HealthReading {
	r := gpu.HealthReading{UUID: g.UUID, Events: true}
	d, err := s.find(ctx, g.UUID)
	if err == nil {
		err = d.readFields(&r)
	}
	if err == nil {
		r.Fabric, err = d.fabric(g.UUID)
	}
	r.Err = err
	return r
}

// readFields reads all fields in one call. A field that the driver or the board does not report stays unset.
func (d device) readFields(r *gpu.HealthReading) error {
	return d.ask("nvmlDeviceGetFieldValues", func() error {
		read, err := d.session.Read(d.handle)
		if err != nil {
			return err
		}
		if action, err := read.Field(fieldRecoveryAction, 0); err == nil {
			wanted := gpu.RecoveryAction(action.Value)
			r.Action = &wanted
		}
		set := func(field uint32) bool {
			value, err := read.Field(field, 0)
			return err == nil && value.Value != 0
		}
		r.RowRemapPending, r.RowRemapFailure = set(fieldRowRemapPending), set(fieldRowRemapFailure)
		r.RetirementPending = set(fieldRetirementPending)
		return nil
	})
}

// fabric reads the state of the registration with the fabric; empty for boards without one, which are asked once.
func (d device) fabric(id gpu.UUID) (gpu.FabricState, error) {
	version, _ := d.node.Driver()
	symbol := "nvmlDeviceGetGpuFabricInfoV"
	if version.Branch() < fabricInfoVFrom {
		symbol = "nvmlDeviceGetGpuFabricInfo"
	}
	if version.Branch() < fabricInfoFrom || d.hasNoFabric(id) {
		return "", nil
	}
	var state model.FabricState
	err := d.ask(symbol, func() (err error) {
		state, err = d.session.Fabric(d.handle)
		return err
	})
	var unsupported *gpu.UnsupportedError
	switch {
	case errors.As(err, &unsupported), err == nil && state == model.FabricNotSupported:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.noFabric[id] = true
		return "", nil
	case err != nil:
		return "", err
	case state == model.FabricCompleted:
		return gpu.FabricCompleted, nil
	}
	return gpu.FabricNotReady, nil
}

func (s *Session) hasNoFabric(id gpu.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noFabric[id]
}
