/* The summary table. */
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

/* The table needs shorter names of the compute modes. */
static const char *short_mode(unsigned int mode)
{
	static const char *const names[] = { "Default", "E. Thread", "Prohibited", "E. Process" };
	return mode < 4 ? names[mode] : "Unknown";
}

static void print_row(const struct gpu *gpu)
{
	char name[TEXT] = "N/A", usage[64], watts[64], load[16], errors[24];
	unsigned long long uncorrected = 0;
	unsigned int persistence = 0, celsius = 0, state = 0, draw = 0, limit = 0, mode = 0, mig = 0, pending;
	memory_t memory = read_memory(gpu->handle);
	utilization_t busy = { 0, 0 };
	nvml.DeviceGetName(gpu->handle, name, sizeof name);
	nvml.DeviceGetPersistenceMode(gpu->handle, &persistence);
	nvml.DeviceGetTemperature(gpu->handle, 0, &celsius);
	nvml.DeviceGetPerformanceState(gpu->handle, &state);
	nvml.DeviceGetPowerUsage(gpu->handle, &draw);
	nvml.DeviceGetEnforcedPowerLimit(gpu->handle, &limit);
	nvml.DeviceGetComputeMode(gpu->handle, &mode);
	int no_mig = nvml.DeviceGetMigMode(gpu->handle, &mig, &pending);
	snprintf(usage, sizeof usage, "%lluMiB / %6lluMiB", memory.used / MIB, memory.total / MIB);
	snprintf(watts, sizeof watts, "%uW / %4uW", draw / 1000, limit / 1000);
	int no_ecc = nvml.DeviceGetTotalEccErrors(gpu->handle, 1, 0, &uncorrected);
	snprintf(errors, sizeof errors, no_ecc ? "N/A" : "%llu", uncorrected);
	printf("| %3u  %-31.31s%-3s |   %-16s %s | %20s |\n", gpu->index, name, persistence ? "On" : "Off", gpu->pci.address, "Off", errors);
	int no_load = nvml.DeviceGetUtilizationRates(gpu->handle, &busy);
	snprintf(load, sizeof load, no_load ? "N/A" : "%u%%", busy.gpu);
	printf("| N/A %4uC    P%-2u %22s | %22s | %7s %12s |\n", celsius, state, watts, usage, load, short_mode(mode));
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
	if (!print_processes(node))
		printf("|  No running processes found                                                             |\n");
	printf(WIDE);
	return EXIT_OK;
}
