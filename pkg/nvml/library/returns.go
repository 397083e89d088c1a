package library

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// code is the name of a vendor return code and its meaning for callers.
type code struct {
	name string
	// kind is nil if callers do not distinguish the code.
	kind error
	// unsupported: driver or hardware never supports the call.
	unsupported bool
}

var codes = map[nvml.Return]code{
	nvml.ERROR_UNINITIALIZED:             {name: "UNINITIALIZED", kind: gpu.ErrDriverNotLoaded},
	nvml.ERROR_INVALID_ARGUMENT:          {name: "INVALID_ARGUMENT"},
	nvml.ERROR_NOT_SUPPORTED:             {name: "NOT_SUPPORTED", unsupported: true},
	nvml.ERROR_NO_PERMISSION:             {name: "NO_PERMISSION", kind: gpu.ErrPermission},
	nvml.ERROR_ALREADY_INITIALIZED:       {name: "ALREADY_INITIALIZED"},
	nvml.ERROR_NOT_FOUND:                 {name: "NOT_FOUND", kind: gpu.ErrNotFound},
	nvml.ERROR_INSUFFICIENT_SIZE:         {name: "INSUFFICIENT_SIZE"},
	nvml.ERROR_INSUFFICIENT_POWER:        {name: "INSUFFICIENT_POWER"},
	nvml.ERROR_DRIVER_NOT_LOADED:         {name: "DRIVER_NOT_LOADED", kind: gpu.ErrDriverNotLoaded},
	nvml.ERROR_TIMEOUT:                   {name: "TIMEOUT", kind: gpu.ErrTimeout},
	nvml.ERROR_IRQ_ISSUE:                 {name: "IRQ_ISSUE"},
	nvml.ERROR_LIBRARY_NOT_FOUND:         {name: "LIBRARY_NOT_FOUND", kind: gpu.ErrDriverNotLoaded},
	nvml.ERROR_FUNCTION_NOT_FOUND:        {name: "FUNCTION_NOT_FOUND", unsupported: true},
	nvml.ERROR_CORRUPTED_INFOROM:         {name: "CORRUPTED_INFOROM"},
	nvml.ERROR_GPU_IS_LOST:               {name: "GPU_IS_LOST", kind: gpu.ErrLost},
	nvml.ERROR_RESET_REQUIRED:            {name: "RESET_REQUIRED", kind: gpu.ErrLost},
	nvml.ERROR_OPERATING_SYSTEM:          {name: "OPERATING_SYSTEM"},
	nvml.ERROR_LIB_RM_VERSION_MISMATCH:   {name: "LIB_RM_VERSION_MISMATCH", kind: gpu.ErrDriverNotLoaded},
	nvml.ERROR_IN_USE:                    {name: "IN_USE", kind: gpu.ErrInUse},
	nvml.ERROR_MEMORY:                    {name: "MEMORY"},
	nvml.ERROR_NO_DATA:                   {name: "NO_DATA", kind: gpu.ErrNotFound},
	nvml.ERROR_VGPU_ECC_NOT_SUPPORTED:    {name: "VGPU_ECC_NOT_SUPPORTED", unsupported: true},
	nvml.ERROR_INSUFFICIENT_RESOURCES:    {name: "INSUFFICIENT_RESOURCES", kind: gpu.ErrInUse},
	nvml.ERROR_FREQ_NOT_SUPPORTED:        {name: "FREQ_NOT_SUPPORTED", unsupported: true},
	nvml.ERROR_ARGUMENT_VERSION_MISMATCH: {name: "ARGUMENT_VERSION_MISMATCH", unsupported: true},
	nvml.ERROR_DEPRECATED:                {name: "DEPRECATED", unsupported: true},
	nvml.ERROR_NOT_READY:                 {name: "NOT_READY", kind: gpu.ErrInUse},
	nvml.ERROR_GPU_NOT_FOUND:             {name: "GPU_NOT_FOUND", kind: gpu.ErrNotFound},
	nvml.ERROR_INVALID_STATE:             {name: "INVALID_STATE"},
	nvml.ERROR_RESET_TYPE_NOT_SUPPORTED:  {name: "RESET_TYPE_NOT_SUPPORTED", unsupported: true},
	nvml.ERROR_UNKNOWN:                   {name: "UNKNOWN"},
}

// AsError converts the return code of a symbol to an error of package gpu, nil for success.
func AsError(symbol string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	known, ok := codes[ret]
	switch {
	case !ok:
		return fmt.Errorf("NVML code %d", int(ret))
	case known.unsupported:
		return &gpu.UnsupportedError{Feature: symbol}
	case known.kind != nil:
		return fmt.Errorf("%w (NVML %s)", known.kind, known.name)
	default:
		return fmt.Errorf("NVML %s", known.name)
	}
}
