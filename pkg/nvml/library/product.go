package library

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// unknown replaces names that the driver does not report: attributes are never empty.
const unknown = "Unknown"

var brands = map[nvml.BrandType]string{
	nvml.BRAND_QUADRO: "Quadro", nvml.BRAND_TESLA: "Tesla", nvml.BRAND_NVS: "NVS", nvml.BRAND_GRID: "Grid",
	nvml.BRAND_GEFORCE: "GeForce", nvml.BRAND_TITAN: "Titan", nvml.BRAND_NVIDIA_VAPPS: "NvidiaVApps",
	nvml.BRAND_NVIDIA_VPC: "NvidiaVPC", nvml.BRAND_NVIDIA_VCS: "NvidiaVCS", nvml.BRAND_NVIDIA_VWS: "NvidiaVWS",
	nvml.BRAND_NVIDIA_CLOUD_GAMING: "NvidiaCloudGaming", nvml.BRAND_QUADRO_RTX: "QuadroRTX",
	nvml.BRAND_NVIDIA_RTX: "NvidiaRTX", nvml.BRAND_NVIDIA: "Nvidia", nvml.BRAND_GEFORCE_RTX: "GeForceRTX",
	nvml.BRAND_TITAN_RTX: "TitanRTX",
}

// BrandName returns the name of NVML's brand.
func BrandName(brand nvml.BrandType) string {
	if name, ok := brands[brand]; ok {
		return name
	}
	return unknown
}

var architectures = map[nvml.DeviceArchitecture]string{
	nvml.DEVICE_ARCH_KEPLER: "Kepler", nvml.DEVICE_ARCH_MAXWELL: "Maxwell", nvml.DEVICE_ARCH_PASCAL: "Pascal",
	nvml.DEVICE_ARCH_VOLTA: "Volta", nvml.DEVICE_ARCH_TURING: "Turing", nvml.DEVICE_ARCH_AMPERE: "Ampere",
	nvml.DEVICE_ARCH_ADA: "Ada Lovelace", nvml.DEVICE_ARCH_HOPPER: "Hopper", nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
	nvml.DEVICE_ARCH_RUBIN: "Rubin",
}

// ArchitectureName returns the name of NVML's architecture. If the driver is older than the architecture or does not report it, the name
// follows from the compute capability major.minor.
func ArchitectureName(architecture nvml.DeviceArchitecture, major, minor int) string {
	if name, ok := architectures[architecture]; ok {
		return name
	}
	switch {
	case major == 3:
		return "Kepler"
	case major == 5:
		return "Maxwell"
	case major == 6:
		return "Pascal"
	case major == 7 && minor < 5:
		return "Volta"
	case major == 7:
		return "Turing"
	case major == 8 && minor == 9:
		return "Ada Lovelace"
	case major == 8:
		return "Ampere"
	case major == 9:
		return "Hopper"
	case major == 10 || major == 12:
		return "Blackwell"
	default:
		return unknown
	}
}
