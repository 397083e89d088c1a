package port

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// computeModes maps the modes that a GPU of the model accepts.
var computeModes = map[model.ComputeMode]gpu.ComputeMode{
	model.ComputeDefault: gpu.ComputeDefault, model.ComputeProhibited: gpu.ComputeProhibited,
	model.ComputeExclusiveProcess: gpu.ComputeExclusiveProcess,
}

// ComputeMode reads the mode of a GPU; gpu.UnsupportedError for a MIG device, which has no compute mode.
func (s *Session) ComputeMode(ctx context.Context, uuid string) (gpu.ComputeMode, error) {
	d, err := s.device(ctx, uuid)
	if err != nil {
		return "", err
	}
	var mode model.ComputeMode
	err = d.ask("nvmlDeviceGetComputeMode", func() (err error) {
		mode, err = s.session.ComputeMode(d.handle)
		return ofDevice(uuid, err)
	})
	return computeModes[mode], err
}

// SetComputeMode sets the mode of a GPU. The caller is root.
func (s *Session) SetComputeMode(ctx context.Context, uuid string, mode gpu.ComputeMode) error {
	d, err := s.device(ctx, uuid)
	if err != nil {
		return err
	}
	for wanted, known := range computeModes {
		if known == mode {
			return d.ask("nvmlDeviceSetComputeMode", func() error { return ofDevice(uuid, s.session.SetComputeMode(d.handle, wanted, true)) })
		}
	}
	return fmt.Errorf("setting the compute mode of %s: unknown mode %q", uuid, mode)
}

// device finds a GPU, or a MIG device with a counted call.
func (s *Session) device(ctx context.Context, uuid string) (device, error) {
	if !strings.HasPrefix(uuid, "MIG-") {
		return s.find(ctx, gpu.UUID(uuid))
	}
	const symbol = "nvmlDeviceGetHandleByUUID"
	handle, err := s.session.ByUUID(uuid)
	if err := s.call(ctx, symbol, wholeNode); err != nil {
		return device{}, err
	}
	return device{s, ctx, handle}, asError(symbol, err)
}

// ofDevice converts the error for a handle of a MIG device.
func ofDevice(uuid string, err error) error {
	if strings.HasPrefix(uuid, "MIG-") && errors.Is(err, model.InvalidArgument) {
		return model.NotSupported
	}
	return err
}
