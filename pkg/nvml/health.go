package nvml

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// Functions that are called for the health of a GPU.
const (
	fieldValues = "nvmlDeviceGetFieldValues"
	fabricInfo  = "nvmlDeviceGetGpuFabricInfo"
	fabricInfoV = "nvmlDeviceGetGpuFabricInfoV"
)

// healthOf is the target of all calls for the health of a GPU. It is not the target of other calls, so that a health call that hangs blocks
// no claim.
func healthOf(index int) library.Target { return library.Target(fmt.Sprintf("GPU %d (health)", index)) }

// polls are the health calls for one GPU.
type polls struct {
	// calls holds a token during each call, so that a GPU that hangs in all of them occupies one thread. It guards the next fields.
	calls chan struct{}
	// last is the last reading, and noFabric means that the board is not part of a fabric.
	last     gpu.HealthReading
	noFabric bool
	// unwatched: no events of the GPU are received. The session's mu guards it.
	unwatched bool
}

// pollsOf returns the health calls for a GPU.
func (s *Session) pollsOf(id gpu.UUID) *polls {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polls[id] == nil {
		s.polls[id] = &polls{calls: make(chan struct{}, 1), last: gpu.HealthReading{UUID: id}}
	}
	return s.polls[id]
}

// begin waits until no other health call for the GPU runs; call the returned function after the call.
func (p *polls) begin(ctx context.Context, on library.Target) (end func(), err error) {
	select {
	case p.calls <- struct{}{}:
		return func() { <-p.calls }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another call on %s: %w", on, ctx.Err())
	}
}

// Alive asks an inspected GPU whether it responds, in one call. It makes no call to a GPU that hangs or is being changed.
func (s *Session) Alive(ctx context.Context, id gpu.UUID) error {
	q, b, err := s.at(ctx, id)
	if err != nil {
		return err
	}
	if err := s.gate.Blocked(q.on); err != nil {
		return err
	}
	q.on = healthOf(b.facts.Index)
	end, err := s.pollsOf(id).begin(ctx, q.on)
	if err != nil {
		return err
	}
	defer end()
	change := s.changes(id)
	steps := change.steps.Load()
	if change.during(steps) {
		return nil
	}
	if err := q.alive(); err != nil && !change.during(steps) {
		return err
	}
	return nil
}

// Health reads the health of an inspected GPU that has just responded, in one call; in two if the board is part of a fabric. A GPU that this
// session is changing is not asked, because a board that is being reset would seem broken; the result is its previous reading.
func (s *Session) Health(ctx context.Context, g *gpu.GPU) gpu.HealthReading {
	q, b, err := s.at(ctx, g.UUID)
	if err != nil {
		return gpu.HealthReading{UUID: g.UUID, Err: err}
	}
	q.on = healthOf(b.facts.Index)
	p, change := s.pollsOf(g.UUID), s.changes(g.UUID)
	end, err := p.begin(ctx, q.on)
	if err != nil {
		return gpu.HealthReading{UUID: g.UUID, Err: err}
	}
	defer end()
	if steps := change.steps.Load(); !change.during(steps) {
		reading := q.health(p)
		reading.UUID = g.UUID
		if ctx.Err() != nil {
			return reading
		}
		if !change.during(steps) {
			p.last = reading
		}
	}
	reading := p.last
	s.mu.Lock()
	reading.Events = !p.unwatched
	s.mu.Unlock()
	return reading
}

// health makes the calls of a reading. The caller holds the lock of the calls.
func (q query) health(p *polls) (r gpu.HealthReading) {
	if r.Err = q.readFields(&r); r.Err != nil {
		return r
	}
	r.Fabric, r.Err = q.fabric(p)
	return r
}

// readFields reads all field values in one call. A value that the driver does not report stays unset.
func (q query) readFields(r *gpu.HealthReading) error {
	values := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}, {FieldId: nvml.FI_DEV_REMAPPED_PENDING}, {FieldId: nvml.FI_DEV_REMAPPED_FAILURE},
		{FieldId: nvml.FI_DEV_RETIRED_PENDING},
	}
	for i := range values {
		values[i].NvmlReturn = uint32(nvml.ERROR_UNKNOWN) // for values that the driver does not fill in
	}
	_, known, err := may(q, fieldValues, func() (struct{}, nvml.Return) { return struct{}{}, q.device.GetFieldValues(values) })
	if err != nil || !known {
		return err
	}
	for i := range values {
		// The GPU was lost after it had responded.
		if err := library.AsError(fieldValues, nvml.Return(values[i].NvmlReturn)); errors.Is(err, gpu.ErrLost) { //nolint:gosec // NVML's code
			return fmt.Errorf("%s on %s: field %d: %w", fieldValues, q.on, values[i].FieldId, err)
		}
	}
	if action, known := number(&values[0]); known {
		wanted := gpu.RecoveryAction(action)
		r.Action = &wanted
	}
	r.RowRemapPending, r.RowRemapFailure, r.RetirementPending = isSet(&values[1]), isSet(&values[2]), isSet(&values[3])
	return nil
}

// number returns the value of a field; false if the driver does not report it. The values of all fields for the health are small.
func number(v *nvml.FieldValue) (uint32, bool) {
	n := binary.LittleEndian.Uint32(v.Value[:])                                // the byte order of all platforms of the driver
	return n, nvml.Return(v.NvmlReturn) == nvml.SUCCESS && n != math.MaxUint32 //nolint:gosec // NVML's code
}

func isSet(v *nvml.FieldValue) bool {
	n, known := number(v)
	return known && n != 0
}

// fabric returns the state of the GPU's registration with its fabric; empty for boards without one, which are asked once.
func (q query) fabric(p *polls) (gpu.FabricState, error) {
	if p.noFabric {
		return "", nil
	}
	info, symbol, err := q.fabricInfo()
	if absent, later := library.Absent(q.ctx, symbol, err); absent {
		p.noFabric = !later
		return "", nil
	}
	switch {
	case err != nil:
		return "", err
	case info.state == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED:
		p.noFabric = true
		return "", nil
	case info.state == nvml.GPU_FABRIC_STATE_COMPLETED && info.status == nvml.SUCCESS:
		return gpu.FabricCompleted, nil
	default:
		return gpu.FabricNotReady, nil
	}
}

// registration is the state of a GPU's registration with a fabric. A completed one has failed if the status is an error.
type registration struct {
	state  uint8
	status nvml.Return
}

// fabricInfo reads the registration with the later of two functions that the driver has.
func (q query) fabricInfo() (r registration, symbol string, err error) {
	if q.session.driver.Has(fabricInfoV) {
		r, err := must(q, fabricInfoV, func() (registration, nvml.Return) {
			info, ret := q.device.GetGpuFabricInfoV().V2()
			return registration{info.State, nvml.Return(info.Status)}, ret //nolint:gosec // NVML's code
		})
		return r, fabricInfoV, err
	}
	r, err = must(q, fabricInfo, func() (registration, nvml.Return) {
		info, ret := q.device.GetGpuFabricInfo()
		return registration{info.State, nvml.Return(info.Status)}, ret //nolint:gosec // NVML's code
	})
	return r, fabricInfo, err
}
