/* Loading the library, selecting GPUs, and the commands that need no table. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

#define LIBRARY "libnvidia-ml.so.1"

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
	FUNCTION(DeviceGetMinorNumber), FUNCTION(DeviceGetMemoryInfo), FUNCTION(DeviceGetComputeMode),
	FUNCTION(DeviceSetComputeMode), FUNCTION(DeviceGetPersistenceMode), FUNCTION(DeviceSetPersistenceMode),
	FUNCTION(DeviceGetUtilizationRates), FUNCTION(DeviceGetTemperature), FUNCTION(DeviceGetPowerUsage),
	FUNCTION(DeviceGetEnforcedPowerLimit), FUNCTION(DeviceGetPerformanceState),
	FUNCTION(DeviceGetCudaComputeCapability), FUNCTION(DeviceGetMigMode), FUNCTION(InternalGetExportTable),
};

static int no_function(void)
{
	return 13; /* NVML's "Function Not Found" */
}

static int load(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW);
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
	if (code == 9) {
		printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n");
		return code;
	}
	printf("Failed to initialize NVML: %s\n", code == 18 ? "Driver/library version mismatch" : nvml.ErrorString(code));
	return code == 999 ? 255 : code;
}

/* Reads all visible GPUs; a lost one ends the program as in the real tool. */
static int look(struct node *node)
{
	int code = nvml.DeviceGetCount_v2(&node->count);
	if (code) {
		printf("Unable to query the number of GPUs: %s\n", nvml.ErrorString(code));
		return code;
	}
	for (unsigned int i = 0; i < node->count && i < MAX_GPUS; i++) {
		struct gpu *gpu = &node->gpus[i];
		gpu->index = i;
		code = nvml.DeviceGetHandleByIndex_v2(i, &gpu->handle);
		if (!code)
			code = nvml.DeviceGetPciInfo_v3(gpu->handle, &gpu->pci);
		if (code) {
			printf("Unable to determine the device handle for gpu %u: %s%s\n", i, nvml.ErrorString(code),
			       code == 15 ? ".  Reboot the system to recover this GPU" : "");
			return code;
		}
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

/* Keeps the GPUs of a comma-separated list of indices, UUIDs or PCI addresses. */
static int keep(struct node *node, const char *list)
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

const char *compute_mode_name(unsigned int mode)
{
	static const char *const names[] = { "Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process" };
	return mode < 4 ? names[mode] : "Unknown";
}

static int list(const struct node *node)
{
	for (unsigned int i = 0; i < node->count; i++) {
		char name[TEXT] = "", uuid[TEXT] = "";
		nvml.DeviceGetName(node->gpus[i].handle, name, sizeof name);
		nvml.DeviceGetUUID(node->gpus[i].handle, uuid, sizeof uuid);
		printf("GPU %u: %s (UUID: %s)\n", node->gpus[i].index, name, uuid);
	}
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
		printf("Invalid compute mode \"%s\": use DEFAULT, PROHIBITED or EXCLUSIVE_PROCESS.\n", text);
		return EXIT_USAGE;
	}
	for (unsigned int i = 0; i < node->count; i++) {
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
	int list, help;
	const char *id, *query, *format, *compute;
};

/* Value of an option written as "-x V", "--long V" or "--long=V". */
static int take(int argc, char **argv, int *at, const char *shorter, const char *longer, const char **value)
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
		else if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help"))
			o->help = 1;
		else if (!take(argc, argv, &i, "-i", "--id", &o->id) && !take(argc, argv, &i, "", "--query-gpu", &o->query) &&
			 !take(argc, argv, &i, "", "--format", &o->format) && !take(argc, argv, &i, "-c", "--compute-mode", &o->compute)) {
			printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
			return EXIT_USAGE;
		}
	}
	return EXIT_OK;
}

static int help(void)
{
	printf("nvidia-smi of a simulated GPU node\n\n"
	       "    nvidia-smi                                   summary table\n"
	       "    nvidia-smi -L                                list GPUs\n"
	       "    nvidia-smi --query-gpu=FIELD,... --format=csv[,noheader][,nounits]\n"
	       "    nvidia-smi -c DEFAULT|PROHIBITED|EXCLUSIVE_PROCESS\n"
	       "    nvidia-smi compute-policy --set-timeslice=N | -l\n\n"
	       "    -i, --id=LIST   only these GPUs: indices, UUIDs or PCI addresses\n");
	return EXIT_OK;
}

static int command(struct node *node, const struct options *o)
{
	int code = keep(node, o->id);
	if (code)
		return code;
	if (o->list)
		return list(node);
	if (o->query)
		return query_gpus(node, o->query, o->format);
	if (o->compute)
		return set_compute_mode(node, o->compute);
	return print_table(node);
}

int main(int argc, char **argv)
{
	struct options o = { .list = 0 };
	struct node node = { .count = 0 };
	int policy = argc > 1 && !strcmp(argv[1], "compute-policy");
	int code = policy ? EXIT_OK : parse(argc, argv, &o);
	if (code)
		return code;
	if (o.help)
		return help();
	code = init();
	if (code)
		return code;
	code = look(&node);
	if (!code)
		code = policy ? compute_policy(&node, argc - 2, argv + 2) : command(&node, &o);
	nvml.Shutdown();
	return code;
}
