/* The devices that a process sees, and their properties. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

int cuda_code(int nvml)
{
	switch (nvml) {
	case 0: return CUDA_SUCCESS;
	case 2: return CUDA_INVALID_VALUE;
	case 3: return CUDA_NOT_SUPPORTED;
	case 6: return CUDA_MPS_CONNECTION_FAILED;
	case 9: return CUDA_NO_DEVICE;
	case 18: return CUDA_SYSTEM_DRIVER_MISMATCH;
	case 19: return CUDA_DEVICE_UNAVAILABLE;
	case 20: return CUDA_OUT_OF_MEMORY;
	case 27: return CUDA_MPS_CLIENT_TERMINATED;
	case 29: return CUDA_MPS_RPC_FAILURE;
	case 700: return CUDA_ILLEGAL_ADDRESS;
	case 807: return CUDA_MPS_SERVER_NOT_READY;
	}
	return CUDA_UNKNOWN;
}

static void add(uint64_t handle)
{
	struct cuda_device *device = &cuda.devices[cuda.count];
	uint64_t h = handle;
	struct arg args[] = { VALUE(h), ROOM(device->uuid, sizeof device->uuid) };
	if (cuda.count == MAX_DEVICES || simgpu_exchange(cuda.session, "nvmlDeviceGetUUID", args, 2))
		return;
	device->handle = handle;
	device->limit = 0;
	cuda.count++;
}

static int gpu_by_index(uint32_t index, uint64_t *handle)
{
	struct arg args[] = { VALUE(index), ROOM(handle, sizeof *handle) };
	return simgpu_exchange(cuda.session, "nvmlDeviceGetHandleByIndex_v2", args, 2);
}

static int in_mig_mode(uint64_t gpu)
{
	uint32_t current = 0, pending = 0;
	struct arg args[] = { VALUE(gpu), ROOM(&current, sizeof current), ROOM(&pending, sizeof pending) };
	return !simgpu_exchange(cuda.session, "nvmlDeviceGetMigMode", args, 3) && current;
}

/* Without a choice in the environment, CUDA only sees one MIG device of a GPU in MIG mode. */
static int first_mig(uint64_t gpu, uint64_t *mig)
{
	for (uint32_t index = 0; index < 7; index++) {
		struct arg args[] = { VALUE(gpu), VALUE(index), ROOM(mig, sizeof *mig) };
		if (!simgpu_exchange(cuda.session, "nvmlDeviceGetMigDeviceHandleByIndex", args, 3))
			return 1;
	}
	return 0;
}

/* The devices without a choice: GPUs without MIG, or one MIG device. */
static int all_devices(uint64_t *list)
{
	uint64_t gpu, mig = 0;
	int count = 0;
	for (uint32_t i = 0; count < MAX_DEVICES && !gpu_by_index(i, &gpu); i++) {
		if (!in_mig_mode(gpu))
			list[count++] = gpu;
		else if (!mig && !first_mig(gpu, &mig))
			mig = 0;
	}
	if (!count && mig)
		list[count++] = mig;
	return count;
}

static int by_uuid(const char *uuid, const uint64_t *all, int count, uint64_t *handle)
{
	struct arg args[] = { STRING(uuid), ROOM(handle, sizeof *handle) };
	if (!simgpu_exchange(cuda.session, "nvmlDeviceGetHandleByUUID", args, 2))
		return 1;
	for (int i = 0; i < count; i++) {
		char full[96];
		uint64_t h = all[i];
		struct arg of[] = { VALUE(h), ROOM(full, sizeof full) };
		if (!simgpu_exchange(cuda.session, "nvmlDeviceGetUUID", of, 2) && !strncmp(full, uuid, strlen(uuid))) {
			*handle = all[i];
			return 1;
		}
	}
	return 0;
}

/* Devices after the first that does not exist are not seen. */
static void choose(char *wanted, const uint64_t *all, int count)
{
	char *rest;
	for (char *name = strtok_r(wanted, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		uint64_t handle;
		char *end;
		long ordinal = strtol(name, &end, 10);
		if (!strncmp(name, "GPU-", 4) || !strncmp(name, "MIG-", 4)) {
			if (!by_uuid(name, all, count, &handle))
				return;
		} else if (end == name || *end || ordinal < 0 || ordinal >= count) {
			return;
		} else {
			handle = all[ordinal];
		}
		add(handle);
	}
}

int cuda_find_devices(void)
{
	uint64_t all[MAX_DEVICES];
	int count = all_devices(all);
	const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
	cuda.count = 0;
	if (wanted) {
		char *copy = strdup(wanted);
		if (copy)
			choose(copy, all, count);
		free(copy);
	} else {
		for (int i = 0; i < count; i++)
			add(all[i]);
	}
	return cuda.count ? CUDA_SUCCESS : CUDA_NO_DEVICE;
}

int cuda_ready(void)
{
	return cuda.session && cuda.owner == getpid() ? CUDA_SUCCESS : CUDA_NOT_INITIALIZED;
}

int cuda_device_of(int ordinal, struct cuda_device **found)
{
	if (cuda_ready())
		return CUDA_NOT_INITIALIZED;
	if (ordinal < 0 || ordinal >= cuda.count)
		return CUDA_INVALID_DEVICE;
	*found = &cuda.devices[ordinal];
	return CUDA_SUCCESS;
}

EXPORT int cuDeviceGetCount(int *count)
{
	if (cuda_ready())
		return CUDA_NOT_INITIALIZED;
	if (!count)
		return CUDA_INVALID_VALUE;
	*count = cuda.count;
	return CUDA_SUCCESS;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
	struct cuda_device *found;
	int code = cuda_device_of(ordinal, &found);
	if (!code)
		*device = ordinal;
	return code;
}

EXPORT int cuDeviceGetName(char *name, int length, int ordinal)
{
	struct cuda_device *device;
	int code = cuda_device_of(ordinal, &device);
	if (code)
		return code;
	struct arg args[] = { VALUE(device->handle), ROOM(name, length) };
	return cuda_code(simgpu_exchange(cuda.session, "nvmlDeviceGetName", args, 2));
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int ordinal)
{
	struct cuda_device *device;
	uint64_t memory[3];
	int code = cuda_device_of(ordinal, &device);
	if (code)
		return code;
	struct arg args[] = { VALUE(device->handle), ROOM(memory, sizeof memory) };
	code = simgpu_exchange(cuda.session, "nvmlDeviceGetMemoryInfo", args, 2);
	*bytes = memory[0];
	return cuda_code(code);
}

/* The UUID as 16 bytes. */
EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int ordinal)
{
	struct cuda_device *device;
	int code = cuda_device_of(ordinal, &device);
	if (code)
		return code;
	const char *at = device->uuid + 4;
	for (int i = 0; i < 16; i++) {
		while (*at == '-')
			at++;
		unsigned int byte = 0;
		sscanf(at, "%2x", &byte);
		uuid[i] = (unsigned char)byte;
		at += 2;
	}
	return CUDA_SUCCESS;
}

enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_COMPUTE_MODE = 20, ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76 };

/* A client with a percentage gets that part of the multiprocessors, rounded down to pairs. */
static int share_of(int multiprocessors)
{
	int share = (int)(multiprocessors * cuda.percentage / 100);
	if (cuda.percentage >= 100)
		return multiprocessors;
	return share < 2 ? 2 : share / 2 * 2;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int ordinal)
{
	struct cuda_device *device;
	uint32_t first = 0, second = 0;
	if (!value)
		return CUDA_INVALID_VALUE;
	int code = cuda_device_of(ordinal, &device);
	if (code)
		return code;
	struct arg args[] = { VALUE(device->handle), ROOM(&first, sizeof first), ROOM(&second, sizeof second) };
	switch (attribute) {
	case ATTRIBUTE_MULTIPROCESSORS:
		code = simgpu_exchange(cuda.session, "cudaMultiprocessors", args, 2);
		*value = share_of((int)first);
		return cuda_code(code);
	case ATTRIBUTE_COMPUTE_MODE:
		code = simgpu_exchange(cuda.session, "nvmlDeviceGetComputeMode", args, 2);
		*value = (int)first;
		return cuda_code(code);
	case ATTRIBUTE_MAJOR:
	case ATTRIBUTE_MINOR:
		code = simgpu_exchange(cuda.session, "nvmlDeviceGetCudaComputeCapability", args, 3);
		*value = (int)(attribute == ATTRIBUTE_MAJOR ? first : second);
		return cuda_code(code);
	}
	return CUDA_INVALID_VALUE;
}
