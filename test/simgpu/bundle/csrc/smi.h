/* A small nvidia-smi: it only makes calls that every NVML answers. */
#ifndef SIMGPU_SMI_H
#define SIMGPU_SMI_H

#define TEXT 96
#define MAX_GPUS 32
#define MIB 1048576ULL

typedef void *device_t;
typedef struct {
	unsigned long long total, free, used;
} memory_t;
typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} memory_v2_t;
typedef struct {
	char legacy[16];
	unsigned int domain, bus, device, id, subsystem;
	char address[32];
} pci_t;
typedef struct {
	unsigned int gpu, memory;
} utilization_t;
typedef struct {
	unsigned int pid;
	unsigned long long used;
	unsigned int gi, ci;
} process_t;
typedef struct {
	unsigned int id, scope;
	long long timestamp, latency;
	unsigned int type;
	int code;
	union {
		double d;
		unsigned int u32;
		unsigned long long u64;
	} value;
} field_value_t;
typedef struct {
	unsigned int start, size;
} placement_t;
typedef struct {
	unsigned int version, id, peers, slices, instances, counts[6];
	unsigned long long memory;
	char name[TEXT];
} gi_profile_t;
typedef struct {
	unsigned int version, id, slices, instances, counts[6];
	char name[TEXT];
} ci_profile_t;
typedef struct {
	device_t gpu;
	unsigned int id, profile;
	placement_t placement;
} gi_info_t;
typedef struct {
	device_t gpu, instance;
	unsigned int id, profile;
	placement_t placement;
} ci_info_t;

/* Exit codes of the real tool: an NVML code, or one of these. */
enum { EXIT_OK = 0, EXIT_USAGE = 2, EXIT_NO_DEVICES = 6, EXIT_NO_LIBRARY = 12, EXIT_UNKNOWN = 255 };

/* The functions of the library; NULL if this driver lacks one. */
extern struct nvml {
	int (*Init_v2)(void);
	int (*Shutdown)(void);
	const char *(*ErrorString)(int);
	int (*SystemGetDriverVersion)(char *, unsigned int);
	int (*SystemGetNVMLVersion)(char *, unsigned int);
	int (*SystemGetCudaDriverVersion)(int *);
	int (*DeviceGetCount_v2)(unsigned int *);
	int (*DeviceGetHandleByIndex_v2)(unsigned int, device_t *);
	int (*DeviceGetName)(device_t, char *, unsigned int);
	int (*DeviceGetUUID)(device_t, char *, unsigned int);
	int (*DeviceGetSerial)(device_t, char *, unsigned int);
	int (*DeviceGetVbiosVersion)(device_t, char *, unsigned int);
	int (*DeviceGetPciInfo_v3)(device_t, pci_t *);
	int (*DeviceGetMinorNumber)(device_t, unsigned int *);
	int (*DeviceGetMemoryInfo)(device_t, memory_t *);
	int (*DeviceGetMemoryInfo_v2)(device_t, memory_v2_t *);
	int (*DeviceGetComputeMode)(device_t, unsigned int *);
	int (*DeviceSetComputeMode)(device_t, unsigned int);
	int (*DeviceGetPersistenceMode)(device_t, unsigned int *);
	int (*DeviceSetPersistenceMode)(device_t, unsigned int);
	int (*DeviceGetUtilizationRates)(device_t, utilization_t *);
	int (*DeviceGetTemperature)(device_t, unsigned int, unsigned int *);
	int (*DeviceGetFanSpeed)(device_t, unsigned int *);
	int (*DeviceGetPowerUsage)(device_t, unsigned int *);
	int (*DeviceGetEnforcedPowerLimit)(device_t, unsigned int *);
	int (*DeviceGetPerformanceState)(device_t, unsigned int *);
	int (*DeviceGetClockInfo)(device_t, unsigned int, unsigned int *);
	int (*DeviceGetMaxClockInfo)(device_t, unsigned int, unsigned int *);
	int (*DeviceGetEncoderUtilization)(device_t, unsigned int *, unsigned int *);
	int (*DeviceGetDecoderUtilization)(device_t, unsigned int *, unsigned int *);
	int (*DeviceGetTotalEccErrors)(device_t, unsigned int, unsigned int, unsigned long long *);
	int (*DeviceGetEccMode)(device_t, unsigned int *, unsigned int *);
	int (*DeviceGetCurrentClocksThrottleReasons)(device_t, unsigned long long *);
	int (*DeviceGetCurrPcieLinkGeneration)(device_t, unsigned int *);
	int (*DeviceGetMaxPcieLinkGeneration)(device_t, unsigned int *);
	int (*DeviceGetCurrPcieLinkWidth)(device_t, unsigned int *);
	int (*DeviceGetMaxPcieLinkWidth)(device_t, unsigned int *);
	int (*DeviceGetFieldValues)(device_t, int, field_value_t *);
	int (*DeviceGetComputeRunningProcesses_v3)(device_t, unsigned int *, process_t *);
	int (*DeviceGetMPSComputeRunningProcesses_v3)(device_t, unsigned int *, process_t *);
	int (*SystemGetProcessName)(unsigned int, char *, unsigned int);
	int (*DeviceGetCudaComputeCapability)(device_t, int *, int *);
	int (*DeviceGetMigMode)(device_t, unsigned int *, unsigned int *);
	int (*DeviceGetMaxMigDeviceCount)(device_t, unsigned int *);
	int (*DeviceGetMigDeviceHandleByIndex)(device_t, unsigned int, device_t *);
	int (*DeviceSetMigMode)(device_t, unsigned int, int *);
	int (*DeviceGetGpuInstanceProfileInfoV)(device_t, unsigned int, gi_profile_t *);
	int (*DeviceGetGpuInstancePossiblePlacements_v2)(device_t, unsigned int, placement_t *, unsigned int *);
	int (*DeviceCreateGpuInstance)(device_t, unsigned int, device_t *);
	int (*DeviceCreateGpuInstanceWithPlacement)(device_t, unsigned int, const placement_t *, device_t *);
	int (*DeviceGetGpuInstances)(device_t, unsigned int, device_t *, unsigned int *);
	int (*GpuInstanceGetInfo)(device_t, gi_info_t *);
	int (*GpuInstanceDestroy)(device_t);
	int (*GpuInstanceGetComputeInstanceProfileInfoV)(device_t, unsigned int, unsigned int, ci_profile_t *);
	int (*GpuInstanceCreateComputeInstance)(device_t, unsigned int, device_t *);
	int (*GpuInstanceGetComputeInstances)(device_t, unsigned int, device_t *, unsigned int *);
	int (*ComputeInstanceGetInfo_v2)(device_t, ci_info_t *);
	int (*ComputeInstanceDestroy)(device_t);
	int (*InternalGetExportTable)(const void **, const void *);
} nvml;

/* Names the export table, through which nvidia-smi reaches functions that NVML does not export. */
extern const unsigned char export_table_id[16];

struct gpu {
	unsigned int index;
	device_t handle;
	pci_t pci;
};

struct node {
	struct gpu gpus[MAX_GPUS];
	unsigned int count;
};

const char *compute_mode_name(unsigned int mode);
memory_t read_memory(device_t device);

/* Value of an option written as "-x V", "--long V" or "--long=V". */
int take_option(int argc, char **argv, int *at, const char *shorter, const char *longer, const char **value);

/* Each returns an exit code. keep_gpus keeps the GPUs in a comma-separated list of indices, UUIDs or PCI addresses; NULL keeps all. */
int keep_gpus(struct node *node, const char *list);
int query_gpus(const struct node *node, const char *fields, const char *format);
int query_apps(const struct node *node, const char *fields, const char *format);
int print_processes(const struct node *node);
/* Writes the text of --query-...= for a value that could not be read. */
void print_missing(int code);
/* The time as queries write it. */
void read_timestamp(char *out);
int print_table(const struct node *node);
int reset_gpus(const struct node *node);
int set_mig_mode(const struct node *node, const char *mode);
int compute_policy(struct node *node, int argc, char **argv);
int mig(struct node *node, int argc, char **argv);

#endif
