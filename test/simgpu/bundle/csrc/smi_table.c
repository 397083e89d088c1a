/* The summary table, and compute-policy. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "smi.h"

#define RULE "+-----------------------------------------+------------------------+----------------------+\n"
#define WIDE "+-----------------------------------------------------------------------------------------+\n"

static void print_head(void)
{
	char driver[TEXT] = "N/A", stamp[64], line[128];
	int cuda = 0;
	time_t now = time(NULL);
	struct tm parts;
	nvml.SystemGetDriverVersion(driver, sizeof driver);
	nvml.SystemGetCudaDriverVersion(&cuda);
	strftime(stamp, sizeof stamp, "%a %b %e %H:%M:%S %Y", localtime_r(&now, &parts));
	snprintf(line, sizeof line, "NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %d.%d", driver, driver, cuda / 1000, cuda % 1000 / 10);
	printf("%s       \n%s| %-87s |\n", stamp, WIDE, line);
	printf(RULE);
	printf("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n");
	printf("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n");
	printf("|                                         |                        |               MIG M. |\n");
	printf("|=========================================+========================+======================|\n");
}

/* The table has room for shorter names of the compute modes. */
static const char *short_mode(unsigned int mode)
{
	static const char *const names[] = { "Default", "E. Thread", "Prohibited", "E. Process" };
	return mode < 4 ? names[mode] : "Unknown";
}

static void print_row(const struct gpu *gpu)
{
	char name[TEXT] = "N/A", usage[64], watts[64];
	unsigned int persistence = 0, celsius = 0, state = 0, draw = 0, limit = 0, mode = 0, mig = 0, pending;
	memory_t memory = { 0, 0, 0 };
	utilization_t busy = { 0, 0 };
	nvml.DeviceGetName(gpu->handle, name, sizeof name);
	nvml.DeviceGetPersistenceMode(gpu->handle, &persistence);
	nvml.DeviceGetTemperature(gpu->handle, 0, &celsius);
	nvml.DeviceGetPerformanceState(gpu->handle, &state);
	nvml.DeviceGetPowerUsage(gpu->handle, &draw);
	nvml.DeviceGetEnforcedPowerLimit(gpu->handle, &limit);
	nvml.DeviceGetComputeMode(gpu->handle, &mode);
	nvml.DeviceGetMemoryInfo(gpu->handle, &memory);
	nvml.DeviceGetUtilizationRates(gpu->handle, &busy);
	int no_mig = nvml.DeviceGetMigMode(gpu->handle, &mig, &pending);
	snprintf(usage, sizeof usage, "%lluMiB / %6lluMiB", memory.used / MIB, memory.total / MIB);
	snprintf(watts, sizeof watts, "%uW / %4uW", draw / 1000, limit / 1000);
	printf("| %3u  %-31.31s%-3s |   %-16s %s | %20s |\n", gpu->index, name, persistence ? "On" : "Off", gpu->pci.address, "Off", "0");
	printf("| N/A %4uC    P%-2u %22s | %22s | %6u%% %12s |\n", celsius, state, watts, usage, busy.gpu, short_mode(mode));
	printf("| %39s | %22s | %20s |\n", "", "", no_mig ? "N/A" : mig ? "Enabled" : "Disabled");
	printf(RULE);
}

int print_table(const struct node *node)
{
	print_head();
	for (unsigned int i = 0; i < node->count; i++)
		print_row(&node->gpus[i]);
	printf("\n" WIDE);
	printf("| Processes:                                                                              |\n");
	printf("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n");
	printf("|        ID   ID                                                               Usage      |\n");
	printf("|=========================================================================================|\n");
	printf("|  No running processes found                                                             |\n" WIDE);
	return EXIT_OK;
}

static const unsigned char table_id[16] = {
	0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
};

enum { SLOT_SET_TIME_SLICE = 192, SLOT_GET_TIME_SLICE = 193 };

static int set_time_slices(void *const *table, const struct gpu *gpus, unsigned int count, unsigned int slice)
{
	static const char *const names[] = { "Default", "Short", "Medium", "Long" };
	int (*set)(device_t, unsigned int) = (int (*)(device_t, unsigned int))table[SLOT_SET_TIME_SLICE];
	for (unsigned int i = 0; i < count; i++) {
		int code = set(gpus[i].handle, slice);
		if (code) {
			printf("Failed to set timeslice duration for GPU %s: %s\n", gpus[i].pci.address, nvml.ErrorString(code));
			return code;
		}
		printf("Successfully set timeslice duration for GPU %s to: %s\n", gpus[i].pci.address, names[slice & 3]);
	}
	return EXIT_OK;
}

static int list_time_slices(void *const *table, const struct gpu *gpus, unsigned int count)
{
	static const char *const names[] = { "Default", "Short", "Medium", "Long" };
	int (*get)(device_t, unsigned int *) = (int (*)(device_t, unsigned int *))table[SLOT_GET_TIME_SLICE];
	for (unsigned int i = 0; i < count; i++) {
		unsigned int slice = 0;
		int code = get(gpus[i].handle, &slice);
		if (code)
			return code;
		printf("GPU %s: timeslice %s\n", gpus[i].pci.address, names[slice & 3]);
	}
	return EXIT_OK;
}

static const char *option_value(const char *arg, const char *name)
{
	size_t n = strlen(name);
	return !strncmp(arg, name, n) && arg[n] == '=' ? arg + n + 1 : NULL;
}

static int matches(const struct gpu *gpu, const char *id)
{
	char uuid[TEXT] = "", index[16];
	snprintf(index, sizeof index, "%u", gpu->index);
	nvml.DeviceGetUUID(gpu->handle, uuid, sizeof uuid);
	return !id || !strcmp(id, index) || !strcasecmp(id, uuid) || !strcasecmp(id, gpu->pci.address);
}

int compute_policy(const struct node *node, int argc, char **argv)
{
	const char *id = NULL, *slice = NULL;
	struct gpu chosen[MAX_GPUS];
	unsigned int count = 0;
	void *const *table = NULL;
	for (int i = 0; i < argc; i++) {
		const char *value;
		if (!strcmp(argv[i], "-i") && i + 1 < argc)
			id = argv[++i];
		else if ((value = option_value(argv[i], "--id")))
			id = value;
		else if ((value = option_value(argv[i], "--set-timeslice")))
			slice = value;
		else if (!strcmp(argv[i], "--set-timeslice") && i + 1 < argc)
			slice = argv[++i];
	}
	for (unsigned int i = 0; i < node->count; i++)
		if (matches(&node->gpus[i], id))
			chosen[count++] = node->gpus[i];
	int code = nvml.InternalGetExportTable((const void **)&table, table_id);
	if (code || !count) {
		printf(code ? "Compute policy is not supported by this driver\n" : "No devices were found\n");
		return code ? code : EXIT_NO_DEVICES;
	}
	if (!slice)
		return list_time_slices(table, chosen, count);
	return set_time_slices(table, chosen, count, (unsigned int)atoi(slice));
}
