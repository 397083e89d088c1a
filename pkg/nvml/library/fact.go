package library

import (
	"context"
	"errors"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Need says how a GPU is treated if a function of the library has no answer for it.
type Need string

// The needs. The zero value is for functions that read no fact of a GPU: their caller decides.
const (
	// Required: without it the driver, or the GPU, cannot be used.
	Required Need = "required"
	// Life: the answer is used only to see that the GPU responds. "Not supported" is an answer, too.
	Life Need = "life"
	// Decides: a GPU that does not support it lacks the feature. With any other error the GPU gets no new claims, because it may be
	// partitioned.
	Decides Need = "decides"
	// Configurable: without an answer of the driver, the value comes from the node's configuration or the system.
	Configurable Need = "configurable"
	// Optional: the GPU can be allocated without it.
	Optional Need = "optional"
)

// Fact is a function that is called for every GPU or for the driver.
type Fact struct {
	// Symbol is the function's name in the library.
	Symbol string
	Need   Need
	// Without describes the effect of a missing answer; Lacking lists boards and drivers without one. docs/boards.md shows both.
	Without, Lacking string
}

// Facts lists all facts. Only index, UUID and PCI address identify a GPU.
var Facts = []Fact{
	{"nvmlInit_v2", Required, "no GPU is advertised", "none known"},
	{"nvmlSystemGetDriverVersion", Required, "no GPU is advertised: the libraries of the driver have the version in their names", "none known"},
	{"nvmlSystemGetCudaDriverVersion", Optional, "`cudaDriverVersion` is `0.0.0`; there are at most 48 MPS shares of a GPU", "none known"},
	{"nvmlDeviceGetCount_v2", Required, "no GPU is advertised", "none known"},
	{"nvmlDeviceGetHandleByIndex_v2", Required, "the GPU is not advertised", "GPUs that are off the bus"},
	{"nvmlDeviceGetUUID", Required, "the GPU is not advertised", "none known"},
	{"nvmlDeviceGetPciInfo_v3", Required, "the GPU is not advertised", "none known"},
	{
		"nvmlDeviceGetMinorNumber", Configurable,
		"the number is read from `/proc/driver/nvidia/gpus/<address>/information`; without it the GPU is not advertised, because its device node is unknown",
		"NVML on Windows Subsystem for Linux",
	},
	{
		"nvmlDeviceGetPerformanceState", Life, "`NOT_SUPPORTED` counts as an answer; with any other error the GPU is not advertised until it answers",
		"none known",
	},
	{
		"nvmlDeviceGetMemoryInfo", Configurable,
		"`memory` of the node's configuration; if not set and the GPU uses the system's memory, the size of that; else `memory` is 0 and mode `mps` is refused",
		"GB10 (DGX Spark), Jetson Orin and Thor",
	},
	{"nvmlDeviceGetName", Optional, "`productName` is `unknown`", "none known"},
	{
		"nvmlDeviceGetCudaComputeCapability", Optional, "`cudaComputeCapability` is `0.0.0`; MPS and GPM are assumed to be supported",
		"none known",
	},
	{"nvmlDeviceGetBrand", Optional, "`brand` is `Unknown`", "none known; NVML reports `BRAND_UNKNOWN` for boards newer than the driver"},
	{"nvmlDeviceGetArchitecture", Optional, "`architecture` follows from the compute capability", "drivers before 450; boards newer than the driver"},
	{"nvmlDeviceGetAddressingMode", Optional, "`addressingMode` is `unknown`", "drivers before 575"},
	{"nvmlDeviceGetNumGpuCores", Optional, "`multiprocessors` comes from the largest MIG profile, or is not published", "drivers before 510"},
	{
		"nvmlDeviceGetMigMode", Decides, "with `NOT_SUPPORTED` the GPU has no MIG; with any other error it is not advertised, as it may be partitioned",
		"boards without MIG, drivers before 450",
	},
	{
		"nvmlDeviceGetGpuInstanceProfileInfo", Optional, "mode `mig` is refused; a GPU in MIG mode is not advertised before all its profiles are known",
		"boards without MIG, drivers before 450",
	},
	{
		"nvmlDeviceGetGpuInstancePossiblePlacements_v2", Optional, "mode `mig` is refused; a GPU in MIG mode is not advertised before all its profiles are known",
		"boards without MIG, drivers before 470",
	},
	{"nvmlDeviceGetGpuInstanceProfileInfoV", Optional, "names of MIG profiles are computed from their sizes", "drivers before 470"},
	{
		"nvmlDeviceGetFieldValues", Optional, "repairs that the driver asks for, row remapping and page retirement are unknown; XIDs decide about the health",
		"none known; drivers before 570 lack field 230, the recovery action",
	},
	{"nvmlDeviceGetGpuFabricInfoV", Optional, "the older `nvmlDeviceGetGpuFabricInfo` is called", "boards without NVSwitch, drivers before 550"},
	{"nvmlDeviceGetGpuFabricInfo", Optional, "the state of the fabric is unknown", "boards without NVSwitch, drivers before 525"},
	{"nvmlDeviceGetSupportedEventTypes", Optional, "the health is polled, but no event is received", "none known"},
	{"nvmlDeviceRegisterEvents", Optional, "the health is polled, but no event is received", "GPUs that are off the bus"},
}

// needOf maps each symbol of Facts to its need.
var needOf = func() map[string]Need {
	all := make(map[string]Need, len(Facts))
	for _, fact := range Facts {
		all[fact.Symbol] = fact.Need
	}
	return all
}()

// Absent reports whether a GPU is usable although a function returned that error, and whether a later call may succeed. Both are false for
// errors that concern more than this call.
func Absent(ctx context.Context, symbol string, err error) (absent, later bool) {
	var unsupported *gpu.UnsupportedError
	need := needOf[symbol]
	switch {
	case err == nil, need == Required, Fatal(ctx, err) != nil:
		return false, false
	case errors.As(err, &unsupported):
		return true, false
	default:
		return need == Optional || need == Configurable, true
	}
}

// Fatal returns errors that concern more than one call: the GPU or the driver is gone or hangs, or the caller gave up. It returns nil for
// all others.
func Fatal(ctx context.Context, err error) error {
	if errors.Is(err, gpu.ErrTimeout) || errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrDriverNotLoaded) || ctx.Err() != nil {
		return err
	}
	return nil
}
