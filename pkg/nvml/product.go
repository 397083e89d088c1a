package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// unknown stands where the driver does not name something: attributes are never empty.
const unknown = "Unknown"

// computeCapability is CUDA's version of a GPU's instruction set.
type computeCapability struct{ major, minor int }

// String is "<major>.<minor>".
func (c computeCapability) String() string { return fmt.Sprintf("%d.%d", c.major, c.minor) }

var brands = map[nvml.BrandType]string{
	nvml.BRAND_QUADRO: "Quadro", nvml.BRAND_TESLA: "Tesla", nvml.BRAND_NVS: "NVS", nvml.BRAND_GRID: "Grid",
	nvml.BRAND_GEFORCE: "GeForce", nvml.BRAND_TITAN: "Titan", nvml.BRAND_NVIDIA_VAPPS: "NvidiaVApps",
	nvml.BRAND_NVIDIA_VPC: "NvidiaVPC", nvml.BRAND_NVIDIA_VCS: "NvidiaVCS", nvml.BRAND_NVIDIA_VWS: "NvidiaVWS",
	nvml.BRAND_NVIDIA_CLOUD_GAMING: "NvidiaCloudGaming", nvml.BRAND_QUADRO_RTX: "QuadroRTX",
	nvml.BRAND_NVIDIA_RTX: "NvidiaRTX", nvml.BRAND_NVIDIA: "Nvidia", nvml.BRAND_GEFORCE_RTX: "GeForceRTX",
	nvml.BRAND_TITAN_RTX: "TitanRTX",
}

// brandName words NVML's brand.
func brandName(brand nvml.BrandType) string {
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

// architectureName words NVML's architecture. A driver that is older than the GPU's marketing, or has no such function, is
// helped out by the compute capability.
func architectureName(architecture nvml.DeviceArchitecture, capability computeCapability) string {
	if name, ok := architectures[architecture]; ok {
		return name
	}
	switch c := capability; {
	case c.major == 3:
		return "Kepler"
	case c.major == 5:
		return "Maxwell"
	case c.major == 6:
		return "Pascal"
	case c.major == 7 && c.minor < 5:
		return "Volta"
	case c.major == 7:
		return "Turing"
	case c == computeCapability{8, 9}:
		return "Ada Lovelace"
	case c.major == 8:
		return "Ampere"
	case c.major == 9:
		return "Hopper"
	case c.major == 10 || c.major == 12:
		return "Blackwell"
	default:
		return unknown
	}
}

// coresPer is the number of FP32 cores in a multiprocessor, from the tables of the CUDA programming guide.
var coresPer = map[string]uint32{
	"3.0": 192, "3.2": 192, "3.5": 192, "3.7": 192,
	"5.0": 128, "5.2": 128, "5.3": 128,
	"6.0": 64, "6.1": 128, "6.2": 128,
	"7.0": 64, "7.2": 64, "7.5": 64,
	"8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128,
	"9.0":  128,
	"10.0": 128, "10.1": 128, "10.3": 128, "11.0": 128, "12.0": 128, "12.1": 128,
}

// coresPerMultiprocessor converts NVML's core count into multiprocessors; zero for a compute capability that is not known.
func coresPerMultiprocessor(capability string) uint32 { return coresPer[capability] }
