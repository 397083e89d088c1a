package metrics

import (
	"maps"
	"regexp"
)

// dcgmUnsupported is the reason why Prism has no value for fields of dcgm-exporter's default counters.
var dcgmUnsupported = map[string]string{
	"DCGM_EXP_GPU_HEALTH_STATUS": "it is the result of DCGM's health checks, which NVML does not provide: use prism_gpu_recovery_action",
	"DCGM_EXP_P2P_STATUS":        "NVML reports it per pair of GPUs, one call each, and no round makes these calls: `nvidia-smi topo -p2p n` shows it",
}

const (
	dcgmOnly = "only DCGM provides it: "
	notBuilt = "not implemented yet: "
)

// dcgmReasons explains why the page does not support other fields of DCGM (dcgm_fields.h of DCGM 4.4); the first match applies.
var dcgmReasons = []struct {
	fields *regexp.Regexp
	reason string
}{
	{regexp.MustCompile(`^DCGM_FI_DEV_CPU_AFFINITY_[0-3]$`), notBuilt + "NVML provides it, and it does not change; attribute resource.kubernetes.io/numaNode is similar"},
	{regexp.MustCompile(`^DCGM_FI_DEV_(CPU|SYSIO|MODULE)_[A-Z0-9_]+$`), dcgmOnly + "it reads CPUs and modules of Grace, which NVML does not support"},
	{regexp.MustCompile(`^DCGM_FI_DEV_(NVSWITCH|FIRST_NVSWITCH|LAST_NVSWITCH)_[A-Z0-9_]+$`), dcgmOnly + "it reads NVSwitches, which NVML does not support"},
	{regexp.MustCompile(`^DCGM_FI_DEV_(FIRST_|LAST_)?CONNECTX_[A-Z0-9_]+$`), dcgmOnly + "it reads network cards, which NVML does not support"},
	{regexp.MustCompile(`^DCGM_FI_IMEX_[A-Z0-9_]+$`), dcgmOnly + "it queries the IMEX service, which NVML does not support"},
	{regexp.MustCompile(`^DCGM_FI_DEV_DIAG_[A-Z0-9_]+$`), dcgmOnly + "it is a result of DCGM's diagnostics"},
	{
		regexp.MustCompile(`^DCGM_FI_(DEV_GPU_NVLINK_ERRORS|GPU_TOPOLOGY_[A-Z_]+|CUDA_VISIBLE_DEVICES_STR|SYNC_BOOST|BIND_UNBIND_EVENT|PROCESS_NAME|DEV_COUNT)$`),
		dcgmOnly + "it is a state of DCGM or of its host engine",
	},
	{
		regexp.MustCompile(`^DCGM_FI_DEV_NVLINK_(CRC_FLIT|CRC_DATA|REPLAY|RECOVERY|ECC_DATA)_ERROR_COUNT_(L([0-9]|1[0-7])|TOTAL)$`),
		notBuilt + "NVML provides it for some generations; the sums of the other errors are supported, such as DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
	},
	{regexp.MustCompile(`^DCGM_FI_DEV_(NVLINK_ERROR_DL_(CRC|RECOVERY|REPLAY)|NVLINK_(GET_STATE|PPCNT_[A-Z_]+)|C2C_[A-Z0-9_]+)$`), notBuilt + "NVML provides it for each link"},
	{
		regexp.MustCompile(`^DCGM_FI_PROF_(PIPE_TENSOR_(IMMA|HMMA|DFMA)_ACTIVE|NVLINK_L([0-9]|1[0-7])_[RT]X_BYTES|NVDEC[0-7]_ACTIVE|NVJPG[0-7]_ACTIVE|NVOFA[01]_ACTIVE|` +
			`C2C_[RT]X_(ALL|DATA)_BYTES|(HOSTMEM|PEERMEM)_CACHE_(HIT|MISS))$`),
		notBuilt + "GPM provides it from Hopper on",
	},
	{regexp.MustCompile(`^DCGM_FI_DEV_ECC_[SD]BE_(VOL|AGG)_(L1|L2|DEV|REG|TEX|SHM|CBU|SRM)$`), notBuilt + "NVML provides it by location; the sums are supported"},
	{regexp.MustCompile(`^DCGM_FI_DEV_(VGPU|SUPPORTED_VGPU|CREATABLE_VGPU|SUPPORTED_TYPE|ENC_STATS|FBC_(STATS|SESSIONS))[A-Z_]*$`), notBuilt + "NVML provides it for hosts of vGPUs"},
	{regexp.MustCompile(`^DCGM_FI_DEV_(PWR_SMOOTHING|FABRIC|CLOCKS_EVENT_REASON|MIG|P2P_NVLINK|REQUESTED_POWER_PROFILE|ENFORCED_POWER_PROFILE|VALID_POWER_PROFILE)_[A-Z0-9_]+$`),
		notBuilt + "NVML provides it"},
	{
		regexp.MustCompile(`^DCGM_FI_DEV_(APP_MEM_CLOCK|APP_SM_CLOCK|AUTOBOOST|BAR1_FREE|COMPUTE_MODE|CUDA_COMPUTE_CAPABILITY|ECC_CURRENT|ECC_PENDING|` +
			`ENFORCED_POWER_LIMIT|POWER_MGMT_LIMIT_(DEF|MIN|MAX)|POWER_USAGE_INSTANT|GET_GPU_RECOVERY_ACTION|GPU_MAX_OP_TEMP|GPU_TEMP_LIMIT|MEM_MAX_OP_TEMP|INFOROM_CONFIG_(CHECK|VALID)|` +
			`MAX_(MEM|SM|VIDEO)_CLOCK|MEMORY_UNREPAIRABLE_FLAG|MEM_AFFINITY_[0-3]|MINOR_NUMBER|NVML_INDEX|PCI_BUSID|PCI_COMBINED_ID|PCI_SUBSYS_ID|PCIE_COUNT_CORRECTABLE_ERRORS|` +
			`PCIE_MAX_LINK_(GEN|WIDTH)|PERSISTENCE_MODE|CC_MODE|PLATFORM_[A-Z_]+|SHUTDOWN_TEMP|SLOWDOWN_TEMP|SUPPORTED_CLOCKS|THERMAL_SETTINGS|` +
			`TOTAL_(APP_CLOCKS|BASE_CLOCKS)_VIOLATION|VIRTUAL_MODE|ACCOUNTING_DATA|COMPUTE_PIDS|GRAPHICS_PIDS|BANKS_REMAP_ROWS_AVAIL_(MAX|HIGH|PARTIAL|LOW|NONE)|` +
			`THRESHOLD_SRM|PENDING_PAGE_RETIREMENT|CHIP_PART_NUMBER)$`),
		notBuilt + "NVML provides it",
	},
}

// whyNot is the reason why the page does not support a field.
func whyNot(field string) string {
	if why, known := dcgmUnsupported[field]; known {
		return "not supported: " + why
	}
	for _, r := range dcgmReasons {
		if r.fields.MatchString(field) {
			return r.reason
		}
	}
	return "unknown field; the fields of this version are in docs/reference/metrics.md"
}

// DCGMUnsupported are the unsupported fields of dcgm-exporter's default counters, with the reason.
func DCGMUnsupported() map[string]string { return maps.Clone(dcgmUnsupported) }
