package nvml

import (
	"context"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// computeModes are NVML's compute modes.
var computeModes = map[nvml.ComputeMode]gpu.ComputeMode{
	nvml.COMPUTEMODE_DEFAULT:           gpu.ComputeDefault,
	nvml.COMPUTEMODE_EXCLUSIVE_THREAD:  gpu.ComputeExclusiveThread,
	nvml.COMPUTEMODE_PROHIBITED:        gpu.ComputeProhibited,
	nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: gpu.ComputeExclusiveProcess,
}

// ComputeMode reads the compute mode of the GPU or MIG device with that UUID. It costs one call; finding a MIG device costs another.
func (s *Session) ComputeMode(ctx context.Context, device string) (gpu.ComputeMode, error) {
	q, err := s.device(ctx, device)
	if err != nil {
		return "", err
	}
	const symbol = "nvmlDeviceGetComputeMode"
	mode, err := must(q, symbol, func() (nvml.ComputeMode, nvml.Return) {
		mode, ret := q.device.GetComputeMode()
		return mode, ofDevice(device, ret)
	})
	if err != nil {
		return "", err
	}
	known, ok := computeModes[mode]
	if !ok {
		return "", fmt.Errorf("%s on %s: unknown compute mode %d", symbol, q.on, mode)
	}
	return known, nil
}

// SetComputeMode sets the compute mode, with as many calls as ComputeMode. gpu.ErrPermission: the process is not root.
func (s *Session) SetComputeMode(ctx context.Context, device string, mode gpu.ComputeMode) error {
	for code, known := range computeModes {
		if known != mode {
			continue
		}
		q, err := s.device(ctx, device)
		if err != nil {
			return err
		}
		_, err = must(q, "nvmlDeviceSetComputeMode", func() (struct{}, nvml.Return) {
			return struct{}{}, ofDevice(device, q.device.SetComputeMode(code))
		})
		return err
	}
	return fmt.Errorf("setting the compute mode of %s: unknown mode %q", device, mode)
}

// device finds an inspected GPU, without a call, or a MIG device. gpu.ErrNotFound: the device does not exist or does not answer.
func (s *Session) device(ctx context.Context, uuid string) (query, error) {
	if !isMIG(uuid) {
		q, _, err := s.at(ctx, gpu.UUID(uuid))
		return q, err
	}
	q := query{ctx: ctx, session: s, on: library.Target("MIG device " + uuid), limit: s.opts.Deadline}
	handle, err := must(q, "nvmlDeviceGetHandleByUUID", func() (nvml.Device, nvml.Return) {
		return s.lib.DeviceGetHandleByUUID(uuid)
	})
	q.device = handle
	return q, err
}

// ofDevice converts the two codes with which drivers refuse the handle of a MIG device to the code for a device without a mode of its own.
func ofDevice(uuid string, ret nvml.Return) nvml.Return {
	if isMIG(uuid) && ret == nvml.ERROR_INVALID_ARGUMENT {
		return nvml.ERROR_NOT_SUPPORTED
	}
	return ret
}

func isMIG(uuid string) bool { return strings.HasPrefix(uuid, "MIG-") }
