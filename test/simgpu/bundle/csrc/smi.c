/* Loading the library, selecting GPUs, and the commands that need no table. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

/* NVML numbers. */
enum { EXCLUSIVE_THREAD = 1, DRIVER_NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15, VERSION_MISMATCH = 18, UNKNOWN_ERROR = 999 };

#define LIBRARY "libnvidia-ml.so"

struct nvml nvml;

#define FUNCTION(name) { "nvml" #name, offsetof(struct nvml, name) }
static const struct {
	const char *name;
	size_t offset;
} functions[] = {
	FUNCTION(Init_v2), FUNCTION(Shutdown), FUNCTION(ErrorString), FUNCTION(SystemGetDriverVersion),
	FUNCTION(SystemGetNVMLVersion), FUNCTION(SystemGetCudaDriverVersion), FUNCTION(DeviceGetCount_v2),
	FUNCTION(DeviceGetHandleByIndex_v2), FUNCTION(DeviceGetName), FUNCTION(DeviceGetUUID),
	FUNCTION(DeviceGetSerial), FUNCTION(DeviceGetVbiosVersion), FUNCTION(DeviceGetPciInfo_v3),
	FUNCTION(DeviceGetMinorNumber), FUNCTION(DeviceGetMemoryInfo), FUNCTION(DeviceGetMemoryInfo_v2), FUNCTION(DeviceGetFanSpeed), FUNCTION(DeviceGetComputeMode),
	FUNCTION(DeviceSetComputeMode), FUNCTION(DeviceGetPersistenceMode), FUNCTION(DeviceSetPersistenceMode),
	FUNCTION(DeviceGetUtilizationRates), FUNCTION(DeviceGetTemperature), FUNCTION(DeviceGetPowerUsage),
	FUNCTION(DeviceGetEnforcedPowerLimit), FUNCTION(DeviceGetPerformanceState),
	FUNCTION(DeviceGetCudaComputeCapability), FUNCTION(DeviceGetMigMode),
	FUNCTION(DeviceGetMaxMigDeviceCount), FUNCTION(DeviceGetMigDeviceHandleByIndex),
	FUNCTION(DeviceSetMigMode), FUNCTION(DeviceGetGpuInstanceProfileInfoV), FUNCTION(DeviceGetGpuInstancePossiblePlacements_v2),
	FUNCTION(DeviceCreateGpuInstance), FUNCTION(DeviceCreateGpuInstanceWithPlacement), FUNCTION(DeviceGetGpuInstances),
	FUNCTION(GpuInstanceGetInfo), FUNCTION(GpuInstanceDestroy), FUNCTION(GpuInstanceGetComputeInstanceProfileInfoV),
	FUNCTION(GpuInstanceCreateComputeInstance), FUNCTION(GpuInstanceGetComputeInstances), FUNCTION(ComputeInstanceGetInfo_v2), FUNCTION(ComputeInstanceDestroy),
	FUNCTION(InternalGetExportTable),
	FUNCTION(DeviceGetClockInfo), FUNCTION(DeviceGetMaxClockInfo), FUNCTION(DeviceGetEncoderUtilization), FUNCTION(DeviceGetDecoderUtilization),
	FUNCTION(DeviceGetTotalEccErrors), FUNCTION(DeviceGetEccMode), FUNCTION(DeviceGetCurrentClocksThrottleReasons),
	FUNCTION(DeviceGetCurrPcieLinkGeneration), FUNCTION(DeviceGetMaxPcieLinkGeneration), FUNCTION(DeviceGetCurrPcieLinkWidth),
	FUNCTION(DeviceGetMaxPcieLinkWidth), FUNCTION(DeviceGetFieldValues), FUNCTION(DeviceGetComputeRunningProcesses_v3),
	FUNCTION(DeviceGetMPSComputeRunningProcesses_v3), FUNCTION(SystemGetProcessName),
};

static int no_function(void)
{
	return FUNCTION_NOT_FOUND;
}

static int load(void)
{
	void *library = dlopen(LIBRARY ".1", RTLD_NOW);
	if (!library) {
		printf("NVIDIA-SMI couldn't find %s library in your system. Please make sure that the NVIDIA Display Driver is properly installed and present in your system.\n", LIBRARY);
		printf("Please also try adding directory that contains %s to your system PATH.\n", LIBRARY);
		return EXIT_NO_LIBRARY;
	}
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *function = dlsym(library, functions[i].name);
		if (!function)
			function = (void *)no_function;
		memcpy((char *)&nvml + functions[i].offset, &function, sizeof function);
	}
	return EXIT_OK;
}

static int init(void)
{
	int code = load();
	if (code)
		return code;
	code = nvml.Init_v2();
	if (!code)
		return EXIT_OK;
	if (code == DRIVER_NOT_LOADED) {
		printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n");
		return code;
	}
	printf("Failed to initialize NVML: %s\n", code == VERSION_MISMATCH ? "Driver/library version mismatch" : nvml.ErrorString(code));
	return code == UNKNOWN_ERROR ? EXIT_UNKNOWN : code;
}

static int no_count(int code)
{
	printf("Unable to query the number of GPUs: %s\n", nvml.ErrorString(code));
	return code;
}

static int no_handle(unsigned int index, int code)
{
	printf("Unable to determine the device handle for gpu %u: %s%s\n\n\n", index, nvml.ErrorString(code),
	       code == GPU_IS_LOST ? ".  Reboot the system to recover this GPU" : "");
	return code;
}

/* Reads all visible GPUs; a lost one ends the program as in the real tool. */
static int look(struct node *node)
{
	int code = nvml.DeviceGetCount_v2(&node->count);
	if (code)
		return no_count(code);
	for (unsigned int i = 0; i < node->count && i < MAX_GPUS; i++) {
		struct gpu *gpu = &node->gpus[i];
		gpu->index = i;
		code = nvml.DeviceGetHandleByIndex_v2(i, &gpu->handle);
		if (!code)
			code = nvml.DeviceGetPciInfo_v3(gpu->handle, &gpu->pci);
		if (code)
			return no_handle(i, code);
	}
	if (!node->count) {
		printf("No devices were found\n");
		return EXIT_NO_DEVICES;
	}
	return EXIT_OK;
}

static int is_gpu(const struct gpu *gpu, const char *id)
{
	char uuid[TEXT] = "", index[16];
	snprintf(index, sizeof index, "%u", gpu->index);
	nvml.DeviceGetUUID(gpu->handle, uuid, sizeof uuid);
	return !strcmp(id, index) || !strcasecmp(id, uuid) || !strcasecmp(id, gpu->pci.address) || !strcasecmp(id, gpu->pci.legacy);
}

int keep_gpus(struct node *node, const char *list)
{
	struct node kept = { .count = 0 };
	char copy[4096], *rest = NULL;
	if (!list)
		return EXIT_OK;
	snprintf(copy, sizeof copy, "%s", list);
	for (char *id = strtok_r(copy, ",", &rest); id; id = strtok_r(NULL, ",", &rest)) {
		unsigned int before = kept.count;
		for (unsigned int i = 0; i < node->count; i++)
			if (kept.count < MAX_GPUS && is_gpu(&node->gpus[i], id))
				kept.gpus[kept.count++] = node->gpus[i];
		if (kept.count == before) {
			printf("No devices were found\n");
			return EXIT_NO_DEVICES;
		}
	}
	*node = kept;
	return EXIT_OK;
}

/* Newer drivers report reserved memory and used memory separately. */
memory_t read_memory(device_t device)
{
	memory_v2_t v2 = { .version = sizeof v2 | 2 << 24 };
	memory_t v1 = { 0, 0, 0 };
	if (!nvml.DeviceGetMemoryInfo_v2(device, &v2))
		return (memory_t){ v2.total, v2.free, v2.used };
	nvml.DeviceGetMemoryInfo(device, &v1);
	return v1;
}

const char *compute_mode_name(unsigned int mode)
{
	static const char *const names[] = { "Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process" };
	return mode < 4 ? names[mode] : "Unknown";
}

/* The MIG devices of a GPU, without the name of the GPU in front. */
static void list_mig(device_t gpu)
{
	unsigned int most = 0;
	device_t device;
	if (nvml.DeviceGetMaxMigDeviceCount(gpu, &most))
		return;
	for (unsigned int i = 0; i < most; i++) {
		char name[TEXT] = "", uuid[TEXT] = "";
		if (nvml.DeviceGetMigDeviceHandleByIndex(gpu, i, &device) || nvml.DeviceGetName(device, name, sizeof name) ||
		    nvml.DeviceGetUUID(device, uuid, sizeof uuid))
			continue;
		const char *profile = strstr(name, "MIG ");
		printf("  %-15s Device %2u: (UUID: %s)\n", profile ? profile : name, i, uuid);
	}
}

/* -L prints the GPUs before the first lost one, and does not allow -i. */
static int list(void)
{
	unsigned int count;
	int code = nvml.DeviceGetCount_v2(&count);
	if (code)
		return no_count(code);
	for (unsigned int i = 0; i < count; i++) {
		char name[TEXT] = "", uuid[TEXT] = "";
		device_t device;
		code = nvml.DeviceGetHandleByIndex_v2(i, &device);
		if (!code)
			code = nvml.DeviceGetName(device, name, sizeof name);
		if (!code)
			code = nvml.DeviceGetUUID(device, uuid, sizeof uuid);
		if (code)
			return no_handle(i, code);
		printf("GPU %u: %s (UUID: %s)\n", i, name, uuid);
		list_mig(device);
	}
	if (!count)
		printf("No devices found.\n");
	return EXIT_OK;
}

static int parse_compute_mode(const char *text, unsigned int *mode)
{
	static const char *const names[] = { "DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS" };
	for (unsigned int i = 0; i < 4; i++)
		if (!strcasecmp(text, names[i]) || (text[0] == (char)('0' + i) && !text[1])) {
			*mode = i;
			return 0;
		}
	return -1;
}

static int set_compute_mode(const struct node *node, const char *text)
{
	static const char *const names[] = { "DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS" };
	unsigned int mode;
	if (parse_compute_mode(text, &mode)) {
		printf("ERROR: Option %s is invalid for -c. Please run 'nvidia-smi -h' for help.\n\n", text);
		return EXIT_USAGE;
	}
	for (unsigned int i = 0; i < node->count; i++) {
		if (mode == EXCLUSIVE_THREAD) {
			printf("Exclusive_Thread was deprecated! Use value 3:Exclusive_Process instead.\nTreating as warning and moving on.\n");
			continue;
		}
		int code = nvml.DeviceSetComputeMode(node->gpus[i].handle, mode);
		if (code) {
			printf("Unable to set the compute mode for GPU %s: %s\n", node->gpus[i].pci.address, nvml.ErrorString(code));
			printf("Terminating early due to previous errors.\n");
			return code;
		}
		printf("Set compute mode to %s for GPU %s.\n", names[mode], node->gpus[i].pci.address);
	}
	printf("All done.\n");
	return EXIT_OK;
}

struct options {
	int list, help, policy, mig, reset;
	const char *id, *query, *apps, *format, *compute, *mig_mode;
};

int take_option(int argc, char **argv, int *at, const char *shorter, const char *longer, const char **value)
{
	size_t n = strlen(longer);
	if (!strncmp(argv[*at], longer, n) && argv[*at][n] == '=') {
		*value = argv[*at] + n + 1;
		return 1;
	}
	if (strcmp(argv[*at], longer) && strcmp(argv[*at], shorter))
		return 0;
	if (*at + 1 >= argc)
		return 0;
	*value = argv[++*at];
	return 1;
}

static int parse(int argc, char **argv, struct options *o)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-L") || !strcmp(argv[i], "--list-gpus"))
			o->list = 1;
		else if (!strcmp(argv[i], "-r") || !strcmp(argv[i], "--gpu-reset"))
			o->reset = 1;
		else if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help"))
			o->help = 1;
		else if (!take_option(argc, argv, &i, "-i", "--id", &o->id) && !take_option(argc, argv, &i, "", "--query-gpu", &o->query) &&
			 !take_option(argc, argv, &i, "", "--query-compute-apps", &o->apps) &&
			 !take_option(argc, argv, &i, "", "--format", &o->format) && !take_option(argc, argv, &i, "-c", "--compute-mode", &o->compute) &&
			 !take_option(argc, argv, &i, "-mig", "--multi-instance-gpu", &o->mig_mode)) {
			printf("ERROR: Option %s is not recognized. Please run 'nvidia-smi -h'.\n\n", argv[i]);
			return EXIT_UNKNOWN;
		}
	}
	if (o->list && o->id) {
		printf("ERROR: Option -i is not valid for this command. Please run 'nvidia-smi -h' for help.\n\n");
		return EXIT_USAGE;
	}
	return EXIT_OK;
}

static int help(void)
{
	printf("nvidia-smi of a simulated GPU node\n\n"
	       "    nvidia-smi                                   summary table\n"
	       "    nvidia-smi -L                                list GPUs\n"
	       "    nvidia-smi --query-gpu=FIELD,... --format=csv[,noheader][,nounits]\n"
	       "    nvidia-smi --query-compute-apps=FIELD,... --format=csv[,noheader][,nounits]\n"
	       "    nvidia-smi -c DEFAULT|PROHIBITED|EXCLUSIVE_PROCESS\n"
	       "    nvidia-smi -mig 0|1\n"
	       "    nvidia-smi -r                                reset GPUs\n"
	       "    nvidia-smi mig -cgi ID[:START],... [-C] | -dci | -dgi\n"
	       "    nvidia-smi compute-policy --set-timeslice=N | -l\n\n"
	       "    -i, --id=LIST   only these GPUs: indices, UUIDs or PCI addresses\n");
	return EXIT_OK;
}

static int command(struct node *node, const struct options *o)
{
	int code = look(node);
	if (!code)
		code = keep_gpus(node, o->id);
	if (code)
		return code;
	if (o->query)
		return query_gpus(node, o->query, o->format);
	if (o->apps)
		return query_apps(node, o->apps, o->format);
	if (o->reset)
		return reset_gpus(node);
	if (o->compute)
		return set_compute_mode(node, o->compute);
	if (o->mig_mode)
		return set_mig_mode(node, o->mig_mode);
	return print_table(node);
}

static int run(int argc, char **argv, const struct options *o)
{
	struct node node = { .count = 0 };
	if (o->list)
		return list();
	if (!o->policy && !o->mig)
		return command(&node, o);
	int code = look(&node);
	if (code)
		return code;
	return o->mig ? mig(&node, argc - 2, argv + 2) : compute_policy(&node, argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
	struct options o = { .policy = argc > 1 && !strcmp(argv[1], "compute-policy"), .mig = argc > 1 && !strcmp(argv[1], "mig") };
	int code = o.policy || o.mig ? EXIT_OK : parse(argc, argv, &o);
	if (code)
		return code;
	if (o.help)
		return help();
	code = init();
	if (code)
		return code;
	code = run(argc, argv, &o);
	nvml.Shutdown();
	return code;
}
