package port

import (
	"context"
	"errors"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Occupied lists the GPU instances of a GPU by id, without compute instances; none outside MIG mode.
func (s *Session) Occupied(ctx context.Context, id gpu.UUID) ([]gpu.Instance, error) {
	d, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	mode, err := d.mode()
	if err != nil || !mode.Enabled {
		return nil, err
	}
	profiles, err := d.profiles(id)
	if err != nil {
		return nil, err
	}
	return d.occupied(profiles)
}

// Instance reads a GPU instance with the MIG device of that UUID; nil if there is no instance with that id.
func (s *Session) Instance(ctx context.Context, id gpu.UUID, gi int, uuid gpu.MIGUUID) (*gpu.Instance, error) {
	d, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	handle, err := d.instanceByID(gi)
	if errors.Is(err, gpu.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	described, err := d.instance(handle)
	if err != nil {
		return nil, err
	}
	instance := describeInstance(described)
	if uuid == "" {
		return &instance, nil
	}
	device, err := d.migDevice(uuid)
	if err == nil && int(device.Instance.ID) == gi {
		instance.Compute = []gpu.ComputeInstance{describeCompute(device)}
	}
	if errors.Is(err, gpu.ErrNotFound) {
		err = nil
	}
	return &instance, err
}

// migDevice finds a MIG device by its UUID.
func (d device) migDevice(uuid gpu.MIGUUID) (found model.MIGDevice, err error) {
	var handle model.Handle
	err = d.ask("nvmlDeviceGetHandleByUUID", func() (err error) {
		handle, err = d.session.ByUUID(string(uuid))
		return err
	})
	for _, symbol := range []string{"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetAttributes_v2"} {
		if err == nil {
			err = d.ask(symbol, func() (err error) {
				found, err = d.session.MIGDevice(handle)
				return orGone(err)
			})
		}
	}
	return found, err
}
