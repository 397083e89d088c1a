/* mig: creates and destroys instances for an administrator. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

enum { PROFILES = 18, COMPUTE_PROFILES = 9, MAX_INSTANCES = 16, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, RESET_REQUIRED = 16, IN_USE = 19 };

#define VERSION_2(type) ((unsigned int)sizeof(type) | 2 << 24)

/* Steps through the profiles of a GPU; 0 if there is none with that number. */
static int gpu_profile(const struct gpu *gpu, unsigned int number, gi_profile_t *profile)
{
	profile->version = VERSION_2(*profile);
	return !nvml.DeviceGetGpuInstanceProfileInfoV(gpu->handle, number, profile);
}

static int compute_profile(device_t gi, unsigned int number, ci_profile_t *profile)
{
	profile->version = VERSION_2(*profile);
	return !nvml.GpuInstanceGetComputeInstanceProfileInfoV(gi, number, 0, profile);
}

static int find_profile(const struct gpu *gpu, unsigned int id, gi_profile_t *profile)
{
	for (unsigned int i = 0; i < PROFILES; i++)
		if (gpu_profile(gpu, i, profile) && profile->id == id)
			return EXIT_OK;
	return NOT_FOUND;
}

static int create_at(const struct gpu *gpu, unsigned int id, unsigned int start, device_t *gi)
{
	placement_t list[MAX_INSTANCES];
	unsigned int count = MAX_INSTANCES;
	int code = nvml.DeviceGetGpuInstancePossiblePlacements_v2(gpu->handle, id, list, &count);
	for (unsigned int i = 0; !code && i < count; i++)
		if (list[i].start == start)
			return nvml.DeviceCreateGpuInstanceWithPlacement(gpu->handle, id, &list[i], gi);
	return code ? code : INVALID_ARGUMENT;
}

/* Creates the compute instance that fills the GPU instance. */
static int fill(const struct gpu *gpu, device_t gi, unsigned int id, unsigned int slices)
{
	ci_profile_t profile;
	ci_info_t made;
	device_t ci;
	unsigned int i = 0;
	while (i < COMPUTE_PROFILES && !(compute_profile(gi, i, &profile) && profile.slices == slices))
		i++;
	int code = i < COMPUTE_PROFILES ? nvml.GpuInstanceCreateComputeInstance(gi, profile.id, &ci) : NOT_FOUND;
	if (!code)
		code = nvml.ComputeInstanceGetInfo_v2(ci, &made);
	if (code)
		printf("Unable to create a compute instance on GPU %2u GPU instance ID %2u: %s\n", gpu->index, id, nvml.ErrorString(code));
	else
		printf("Successfully created compute instance ID %2u on GPU %2u GPU instance ID %2u using profile %s (ID %2u)\n",
		       made.id, gpu->index, id, profile.name, profile.id);
	return code;
}

/* Creates an instance of "ID" or "ID:START". */
static int create_one(const struct gpu *gpu, const char *text, int compute)
{
	char *start;
	unsigned int id = (unsigned int)strtoul(text, &start, 10);
	gi_profile_t profile;
	gi_info_t made;
	device_t gi;
	int code = find_profile(gpu, id, &profile);
	if (!code && *start == ':')
		code = create_at(gpu, id, (unsigned int)atoi(start + 1), &gi);
	else if (!code)
		code = nvml.DeviceCreateGpuInstance(gpu->handle, id, &gi);
	if (!code)
		code = nvml.GpuInstanceGetInfo(gi, &made);
	if (code) {
		printf("Unable to create a GPU instance on GPU %2u using profile %s: %s\n", gpu->index, text, nvml.ErrorString(code));
		printf("Failed to create GPU instances: %s\n", nvml.ErrorString(code));
		return code;
	}
	printf("Successfully created GPU instance ID %2u on GPU %2u using profile %s (ID %2u)\n", made.id, gpu->index, profile.name, id);
	return compute ? fill(gpu, gi, made.id, profile.slices) : EXIT_OK;
}

static int create(const struct gpu *gpu, const char *list, int compute)
{
	char copy[256], *rest = NULL;
	int code = EXIT_OK;
	snprintf(copy, sizeof copy, "%s", list);
	for (char *text = strtok_r(copy, ",", &rest); text && !code; text = strtok_r(NULL, ",", &rest))
		code = create_one(gpu, text, compute);
	return code;
}

static int destroy_compute(const struct gpu *gpu, unsigned int id, device_t ci)
{
	ci_info_t info = { .id = 0 };
	int code = nvml.ComputeInstanceGetInfo_v2(ci, &info);
	if (!code)
		code = nvml.ComputeInstanceDestroy(ci);
	if (code) {
		printf("Unable to destroy compute instance ID %2u from GPU %2u GPU instance ID %2u: %s\n", info.id, gpu->index, id, nvml.ErrorString(code));
		printf("Failed to destroy compute instances: %s\n", nvml.ErrorString(code));
		return code;
	}
	printf("Successfully destroyed compute instance ID %2u from GPU %2u GPU instance ID %2u\n", info.id, gpu->index, id);
	return EXIT_OK;
}

static int empty(const struct gpu *gpu, device_t gi, unsigned int id)
{
	ci_profile_t profile;
	for (unsigned int i = 0; i < COMPUTE_PROFILES; i++) {
		device_t list[MAX_INSTANCES];
		unsigned int count = MAX_INSTANCES;
		if (!compute_profile(gi, i, &profile) || nvml.GpuInstanceGetComputeInstances(gi, profile.id, list, &count))
			continue;
		for (unsigned int k = 0; k < count; k++) {
			int code = destroy_compute(gpu, id, list[k]);
			if (code)
				return code;
		}
	}
	return EXIT_OK;
}

static int destroy_instance(const struct gpu *gpu, device_t gi, int compute_only)
{
	gi_info_t info = { .id = 0 };
	int code = nvml.GpuInstanceGetInfo(gi, &info);
	if (!code && compute_only)
		return empty(gpu, gi, info.id);
	if (!code)
		code = nvml.GpuInstanceDestroy(gi);
	if (code) {
		printf("Unable to destroy GPU instance ID %2u from GPU %2u: %s\n", info.id, gpu->index, nvml.ErrorString(code));
		printf("Failed to destroy GPU instances: %s\n", nvml.ErrorString(code));
		return code;
	}
	printf("Successfully destroyed GPU instance ID %2u from GPU %2u\n", info.id, gpu->index);
	return EXIT_OK;
}

/* Destroys all GPU instances, or only their compute instances. */
static int destroy(const struct gpu *gpu, int compute_only)
{
	gi_profile_t profile;
	for (unsigned int i = 0; i < PROFILES; i++) {
		device_t list[MAX_INSTANCES];
		unsigned int count = MAX_INSTANCES;
		if (!gpu_profile(gpu, i, &profile) || nvml.DeviceGetGpuInstances(gpu->handle, profile.id, list, &count))
			continue;
		for (unsigned int k = 0; k < count; k++) {
			int code = destroy_instance(gpu, list[k], compute_only);
			if (code)
				return code;
		}
	}
	return EXIT_OK;
}

static void warn_of_persistence(const struct gpu *gpu)
{
	unsigned int on = 0;
	if (!nvml.DeviceGetPersistenceMode(gpu->handle, &on) && !on)
		printf("\nWarning: persistence mode is disabled on device %s. See the Known Issues section of the nvidia-smi(1) man page for more information. Run with [--help | -h] switch to get more information on how to enable persistence mode.\n", gpu->pci.address);
}

/* Warns of a mode that is not in effect yet. */
static void warn_of_pending(const struct gpu *gpu, const char *verb, int status)
{
	printf("Warning: MIG mode is in pending %s state for GPU %s:%s\n", verb, gpu->pci.address, nvml.ErrorString(status));
	if (status == RESET_REQUIRED)
		printf("Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU %s\n", gpu->pci.address);
	if (status == IN_USE)
		printf("%s is currently being used by one or more other processes (e.g. CUDA application or a monitoring application such as another instance of nvidia-smi). Please first kill all processes using the device and retry the command or reboot the system to make MIG mode effective.\n", gpu->pci.address);
}

/* Returns the code that ends the program; a board without MIG does not. */
static int set_mode(const struct gpu *gpu, int on)
{
	const char *verb = on ? "enable" : "disable";
	int status = 0, code = nvml.DeviceSetMigMode(gpu->handle, (unsigned int)on, &status);
	if (code)
		printf("Unable to %s MIG Mode for GPU %s: %s\n", verb, gpu->pci.address, nvml.ErrorString(code));
	if (code == NOT_SUPPORTED) {
		printf("Treating as warning and moving on.\n");
		return EXIT_OK;
	}
	if (code) {
		printf("Terminating early due to previous errors.\n");
		return code;
	}
	if (status) {
		warn_of_pending(gpu, verb, status);
		return EXIT_OK;
	}
	printf("%s MIG Mode for GPU %s\n", on ? "Enabled" : "Disabled", gpu->pci.address);
	warn_of_persistence(gpu);
	return EXIT_OK;
}

int set_mig_mode(const struct node *node, const char *text)
{
	if ((text[0] != '0' && text[0] != '1') || text[1]) {
		printf("ERROR: Option %s is invalid for -mig. Please run 'nvidia-smi -h' for help.\n\n", text);
		return EXIT_USAGE;
	}
	for (unsigned int i = 0; i < node->count; i++) {
		int code = set_mode(&node->gpus[i], text[0] == '1');
		if (code)
			return code;
	}
	printf("All done.\n");
	return EXIT_OK;
}

struct options {
	int compute, destroy_gi, destroy_ci;
	const char *id, *create;
};

static int parse(int argc, char **argv, struct options *o)
{
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "-C") || !strcmp(argv[i], "--default-compute-instance"))
			o->compute = 1;
		else if (!strcmp(argv[i], "-dgi") || !strcmp(argv[i], "--destroy-gpu-instance"))
			o->destroy_gi = 1;
		else if (!strcmp(argv[i], "-dci") || !strcmp(argv[i], "--destroy-compute-instance"))
			o->destroy_ci = 1;
		else if (!take_option(argc, argv, &i, "-i", "--id", &o->id) && !take_option(argc, argv, &i, "-cgi", "--create-gpu-instance", &o->create))
			return EXIT_USAGE;
	}
	return !!o->create + o->destroy_gi + o->destroy_ci == 1 ? EXIT_OK : EXIT_USAGE;
}

/* Keeps the GPUs in MIG mode: this command ignores the others. */
static int keep_enabled(struct node *node)
{
	unsigned int kept = 0;
	for (unsigned int i = 0; i < node->count; i++) {
		unsigned int on = 0, pending;
		if (!nvml.DeviceGetMigMode(node->gpus[i].handle, &on, &pending) && on)
			node->gpus[kept++] = node->gpus[i];
	}
	node->count = kept;
	if (!kept)
		printf("No MIG-enabled devices found.\n");
	return kept ? EXIT_OK : EXIT_NO_DEVICES;
}

int mig(struct node *node, int argc, char **argv)
{
	struct options o = { .compute = 0 };
	int code = parse(argc, argv, &o);
	if (code) {
		printf("nvidia-smi mig [-i LIST] -cgi ID[:START],... [-C] | -dci | -dgi\n");
		return code;
	}
	code = keep_gpus(node, o.id);
	if (!code)
		code = keep_enabled(node);
	for (unsigned int i = 0; i < node->count && !code; i++)
		code = o.create ? create(&node->gpus[i], o.create, o.compute) : destroy(&node->gpus[i], o.destroy_ci);
	return code;
}
