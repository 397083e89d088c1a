package port

import (
	"context"
	"errors"
	"fmt"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// CreateInstance creates a GPU instance of the profile with the driver's id at a placement, and returns its id. gpu.ErrInUse: it
// does not fit beside existing ones, and nothing was created; gpu.UnsupportedError: the GPU is not in MIG mode.
func (s *Session) CreateInstance(ctx context.Context, id gpu.UUID, profile int, at gpu.Placement) (int, error) {
	d, err := s.find(ctx, id)
	if err != nil {
		return 0, err
	}
	var made model.Handle
	err = d.ask("nvmlDeviceCreateGpuInstanceWithPlacement", func() (err error) {
		wanted := model.Placement{Start: uint32(at.Start), Size: uint32(at.Size)}
		made, err = s.session.CreateGPUInstance(ctx, d.handle, uint32(profile), &wanted, true)
		return err
	})
	if err != nil {
		return 0, err
	}
	instance, err := d.instance(made)
	if errors.Is(err, gpu.ErrInUse) {
		err = fmt.Errorf("created, but its id is %w (%v)", gpu.ErrNotFound, err) //nolint:errorlint // wrapping it would mean that it was not created
	}
	return int(instance.ID), err
}

// CreateComputeInstance creates the compute instance that fills a GPU instance. gpu.ErrNotFound: no such GPU instance; gpu.ErrInUse: it
// already contains a compute instance.
func (s *Session) CreateComputeInstance(ctx context.Context, id gpu.UUID, gi int) (gpu.ComputeInstance, error) {
	none := gpu.ComputeInstance{}
	d, err := s.find(ctx, id)
	if err != nil {
		return none, err
	}
	parent, err := d.instanceByID(gi)
	if err != nil {
		return none, err
	}
	instance, err := d.instance(parent)
	if err != nil {
		return none, err
	}
	var made model.Handle
	profiles := instance.Profile.ComputeProfiles() // the last one fills it
	whole := profiles[len(profiles)-1]
	if err := d.ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", s.session.Alive); err != nil {
		return none, err
	}
	err = d.ask("nvmlGpuInstanceCreateComputeInstance", func() (err error) {
		made, err = s.session.CreateComputeInstance(ctx, parent, whole.ID, true)
		return err
	})
	if err != nil {
		return none, err
	}
	return d.madeCompute(gi, made)
}

// madeCompute finds the MIG device of a new compute instance and its UUID.
func (d device) madeCompute(gi int, made model.Handle) (gpu.ComputeInstance, error) {
	var compute model.ComputeInstance
	err := d.ask("nvmlComputeInstanceGetInfo_v2", func() (err error) {
		compute, err = d.session.ComputeInstance(made)
		return err
	})
	if err != nil {
		return gpu.ComputeInstance{}, err
	}
	uuid, err := d.uuidOf(gi, compute.ID)
	return gpu.ComputeInstance{ID: int(compute.ID), Slices: compute.Profile.Slices, UUID: uuid}, err
}

// uuidOf searches the GPU's MIG devices for the device of a compute instance.
func (d device) uuidOf(gi int, ci uint32) (gpu.MIGUUID, error) {
	board, _, err := d.session.Device(d.handle)
	if err == nil {
		err = d.ask("nvmlDeviceGetMaxMigDeviceCount", d.session.Alive)
	}
	for index := 0; err == nil && index < board.MIG.MaxDevices; index++ {
		var handle model.Handle
		err = d.ask("nvmlDeviceGetMigDeviceHandleByIndex", func() (err error) {
			handle, err = d.session.MIGDeviceByIndex(d.handle, index)
			return err
		})
		var found model.MIGDevice
		ask := func(symbol string) bool {
			if err == nil {
				err = d.ask(symbol, func() (err error) {
					found, err = d.session.MIGDevice(handle)
					return err
				})
			}
			return err == nil
		}
		if ask("nvmlDeviceGetGpuInstanceId") && int(found.Instance.ID) == gi && ask("nvmlDeviceGetComputeInstanceId") && found.Compute.ID == ci &&
			ask("nvmlDeviceGetUUID") {
			return gpu.MIGUUID(found.UUID), nil
		}
	}
	return "", errors.Join(err, fmt.Errorf("finding the MIG device of compute instance %d of GPU instance %d: %w", ci, gi, gpu.ErrNotFound))
}

// DestroyComputeInstance destroys a compute instance. gpu.ErrNotFound: it does not exist; gpu.ErrInUse: a process uses it.
func (s *Session) DestroyComputeInstance(ctx context.Context, id gpu.UUID, gi, ci int) error {
	d, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	parent, err := d.instanceByID(gi)
	if err != nil {
		return err
	}
	var compute model.Handle
	err = d.ask("nvmlGpuInstanceGetComputeInstanceById", func() (err error) {
		compute, err = s.session.ComputeInstanceByID(parent, uint32(ci), true)
		return orGone(err)
	})
	if err != nil {
		return err
	}
	return d.ask("nvmlComputeInstanceDestroy", func() error {
		return orGone(s.session.DestroyComputeInstance(ctx, compute, true))
	})
}

// DestroyInstance destroys a GPU instance. gpu.ErrNotFound: it does not exist; gpu.ErrInUse: it has compute instances.
func (s *Session) DestroyInstance(ctx context.Context, id gpu.UUID, gi int) error {
	d, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	instance, err := d.instanceByID(gi)
	if err != nil {
		return err
	}
	return d.ask("nvmlGpuInstanceDestroy", func() error {
		return orGone(s.session.DestroyGPUInstance(ctx, instance, true))
	})
}

// instanceByID finds a GPU instance; gpu.ErrNotFound outside MIG mode too.
func (d device) instanceByID(gi int) (model.Handle, error) {
	var found model.Handle
	err := d.ask("nvmlDeviceGetGpuInstanceById", func() (err error) {
		found, err = d.session.GPUInstanceByID(d.handle, uint32(gi), true)
		if errors.Is(err, model.NotSupported) {
			return model.NotFound
		}
		return err
	})
	return found, err
}

// orGone converts the error for the handle of an instance that was destroyed meanwhile.
func orGone(err error) error {
	if errors.Is(err, model.InvalidArgument) {
		return model.NotFound
	}
	return err
}
