package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// addressingModes are the names that NVIDIA's DRA driver publishes.
var addressingModes = map[uint32]string{
	uint32(nvml.DEVICE_ADDRESSING_MODE_NONE): "None", uint32(nvml.DEVICE_ADDRESSING_MODE_HMM): "HMM", uint32(nvml.DEVICE_ADDRESSING_MODE_ATS): "ATS",
}

// readAddressing reads how the GPU accesses system memory. Drivers from before 2025 do not report it.
func readAddressing(q query, g *gpu.GPU) error {
	mode, known, err := may(q, "nvmlDeviceGetAddressingMode", q.device.GetAddressingMode)
	if known {
		g.Product.AddressingMode = addressingModes[mode.Value]
	}
	return err
}
