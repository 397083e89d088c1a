package library

import (
	"context"
	"errors"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Need is what becomes of a GPU for which a function of the library has no answer.
type Need string

// The needs. The zero value is that of a function that is no fact of a GPU: its caller decides.
const (
	// Required: nothing of the driver, or of the GPU, can be used without it.
	Required Need = "required"
	// Life: the answer says that the GPU responds, and has no other use. That the GPU does not support the function is an answer.
	Life Need = "life"
	// Decides: a GPU that does not support it lacks the feature. Any other error keeps the GPU from new claims, as it may be partitioned.
	Decides Need = "decides"
	// Configurable: the node's configuration or the system has it where the driver does not.
	Configurable Need = "configurable"
	// Optional: the GPU can be allocated without it.
	Optional Need = "optional"
)

// Fact is a function that is called for every GPU or for the driver.
type Fact struct {
	// Symbol is its name in the library.
	Symbol string
	Need   Need
	// Without is what is different without an answer, Lacking which boards and drivers have none. docs/boards.md has both.
	Without, Lacking string
}

// Facts are all of them. GPUs are identified by index, UUID and PCI address alone.
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
}

// needOf is the need of each symbol of Facts.
var needOf = func() map[string]Need {
	all := make(map[string]Need, len(Facts))
	for _, fact := range Facts {
		all[fact.Symbol] = fact.Need
	}
	return all
}()

// Absent reports whether a GPU can do without the answer of a function that ended with that error, and whether a later call may have it. Errors
// that concern more than one answer are none.
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

// Fatal returns an error that concerns more than one answer: the GPU or the driver is gone, hangs, or the caller gave up. It returns nil for any
// other.
func Fatal(ctx context.Context, err error) error {
	if errors.Is(err, gpu.ErrTimeout) || errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrDriverNotLoaded) || ctx.Err() != nil {
		return err
	}
	return nil
}
