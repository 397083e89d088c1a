/* Initialisation, contexts and memory of the simulated libcuda. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

struct cuda_state cuda;

struct context {
	struct cuda_device *device;
	uint64_t id;
	unsigned int users; /* of a primary context */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context primary[MAX_DEVICES];
static __thread struct context *current __attribute__((tls_model("initial-exec")));

static int open_session(void)
{
	struct visible seen;
	uint64_t session = 0;
	if (simgpu_look(&seen))
		return CUDA_NO_DEVICE;
	struct arg args[] = {
		STRING(SIMGPU_DRIVER), GIVEN(seen.minors, seen.minor_count),
		GIVEN(seen.capabilities, seen.capability_count * sizeof *seen.capabilities), ROOM(&session, sizeof session),
	};
	int code = cuda_code(simgpu_exchange(0, "cudaInit", args, 4));
	if (code)
		return code;
	cuda = (struct cuda_state){ .owner = getpid(), .session = session, .percentage = 100 };
	code = cuda_find_devices();
	if (code)
		cuda.session = 0;
	else
		simgpu_open_nodes(&seen);
	return code;
}

static int initialise(int as_server)
{
	int code = CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	if (!cuda.session) {
		code = open_session();
		if (!code && !as_server)
			code = cuda_join_mps();
		if (code) {
			cuda.session = 0;
			simgpu_close_nodes();
		}
	} else if (cuda.owner != getpid()) {
		code = CUDA_NOT_INITIALIZED;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT int cuInit(unsigned int flags)
{
	return flags ? CUDA_INVALID_VALUE : initialise(0);
}

EXPORT int cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_INVALID_VALUE;
	*version = SIMGPU_CUDA;
	return CUDA_SUCCESS;
}

static int create(struct context *context, struct cuda_device *device)
{
	struct arg args[] = {
		VALUE(device->handle), VALUE(cuda.role), VALUE(cuda.server), VALUE(device->limit),
		ROOM(&context->id, sizeof context->id),
	};
	context->device = device;
	return cuda_code(simgpu_exchange(cuda.session, "cudaCreateContext", args, 5));
}

static int destroy(struct context *context)
{
	struct arg args[] = { VALUE(context->device->handle), VALUE(context->id) };
	return cuda_code(simgpu_exchange(cuda.session, "cudaDestroyContext", args, 2));
}

EXPORT int cuCtxCreate_v2(struct context **context, unsigned int flags, int ordinal)
{
	struct cuda_device *device;
	int code = cuda_device_of(ordinal, &device);
	(void)flags;
	if (code)
		return code;
	struct context *made = calloc(1, sizeof *made);
	if (!made)
		return CUDA_OUT_OF_MEMORY;
	code = create(made, device);
	if (code) {
		free(made);
		return code;
	}
	*context = current = made;
	return CUDA_SUCCESS;
}

EXPORT int cuCtxDestroy_v2(struct context *context)
{
	if (!context)
		return CUDA_INVALID_VALUE;
	if (cuda_ready())
		return CUDA_NOT_INITIALIZED;
	int code = destroy(context);
	if (current == context)
		current = NULL;
	free(context);
	return code;
}

EXPORT int cuDevicePrimaryCtxRetain(struct context **context, int ordinal)
{
	struct cuda_device *device;
	int code = cuda_device_of(ordinal, &device);
	if (code)
		return code;
	pthread_mutex_lock(&lock);
	if (!primary[ordinal].users)
		code = create(&primary[ordinal], device);
	if (!code) {
		primary[ordinal].users++;
		*context = &primary[ordinal];
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int ordinal)
{
	struct cuda_device *device;
	int code = cuda_device_of(ordinal, &device);
	if (code)
		return code;
	pthread_mutex_lock(&lock);
	code = CUDA_INVALID_CONTEXT;
	if (primary[ordinal].users)
		code = --primary[ordinal].users ? CUDA_SUCCESS : destroy(&primary[ordinal]);
	pthread_mutex_unlock(&lock);
	return code;
}

/* Checks the preconditions of a call that uses the current context. */
static int in_context(void)
{
	int code = cuda_ready();
	return code || current ? code : CUDA_INVALID_CONTEXT;
}

EXPORT int cuCtxSetCurrent(struct context *context)
{
	if (cuda_ready())
		return CUDA_NOT_INITIALIZED;
	current = context;
	return CUDA_SUCCESS;
}

EXPORT int cuCtxGetCurrent(struct context **context)
{
	if (cuda_ready())
		return CUDA_NOT_INITIALIZED;
	if (!context)
		return CUDA_INVALID_VALUE;
	*context = current;
	return CUDA_SUCCESS;
}

EXPORT int cuCtxSynchronize(void)
{
	return in_context();
}

/* Nsight Systems aborts if the library lacks one of these. */
EXPORT int cuProfilerStart(void)
{
	return cuda_ready();
}

EXPORT int cuProfilerStop(void)
{
	return cuda_ready();
}

EXPORT int cuGetExportTable(const void **table, const void *id)
{
	if (!table || !id)
		return CUDA_INVALID_VALUE;
	*table = NULL;
	return CUDA_NOT_FOUND;
}

EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
	uint64_t wanted = bytes;
	int refused = in_context();
	if (refused)
		return refused;
	struct arg args[] = { VALUE(current->device->handle), VALUE(current->id), VALUE(wanted), ROOM(address, sizeof *address) };
	return cuda_code(simgpu_exchange(cuda.session, "cudaAllocate", args, 4));
}

EXPORT int cuMemFree_v2(uint64_t address)
{
	int refused = in_context();
	if (refused)
		return refused;
	struct arg args[] = { VALUE(current->device->handle), VALUE(current->id), VALUE(address) };
	return cuda_code(simgpu_exchange(cuda.session, "cudaFree", args, 3));
}

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	uint64_t unused = 0, all = 0;
	int refused = in_context();
	if (refused)
		return refused;
	struct arg args[] = {
		VALUE(current->device->handle), VALUE(current->id), ROOM(&unused, sizeof unused), ROOM(&all, sizeof all),
	};
	int code = cuda_code(simgpu_exchange(cuda.session, "cudaMemory", args, 4));
	*free_bytes = unused;
	*total = all;
	return code;
}

/* For nvidia-cuda-mps-server: takes all devices, as the owner with that key. */
EXPORT int simgpu_mps_serve(uint64_t key)
{
	int code = initialise(1);
	if (code)
		return code;
	cuda.role = ROLE_MPS_SERVER;
	cuda.server = key;
	for (int i = 0; i < cuda.count && !code; i++)
		code = create(&primary[i], &cuda.devices[i]);
	return code;
}

/* For nvidia-cuda-mps-server: ends the contexts of a client. */
EXPORT void simgpu_mps_end_client(uint32_t pid)
{
	for (int i = 0; i < cuda.count; i++) {
		struct arg args[] = { VALUE(cuda.devices[i].handle), VALUE(cuda.server), VALUE(pid) };
		simgpu_exchange(cuda.session, "cudaEndClients", args, 3);
	}
}

/* For nvidia-cuda-mps-server: whether clients with a fatal fault have not exited yet. */
EXPORT int simgpu_mps_faulted(void)
{
	uint32_t faulted = 0;
	for (int i = 0; i < cuda.count && !faulted; i++) {
		struct arg args[] = { VALUE(cuda.devices[i].handle), VALUE(cuda.server), ROOM(&faulted, sizeof faulted) };
		if (simgpu_exchange(cuda.session, "cudaServerFaulted", args, 3))
			faulted = 0;
	}
	return faulted != 0;
}

/* For test programs: simulates a kernel that reads an illegal address. */
EXPORT int simgpu_illegal_address(void)
{
	if (!current)
		return CUDA_INVALID_CONTEXT;
	struct arg args[] = { VALUE(current->device->handle), VALUE(current->id) };
	int code = cuda_code(simgpu_exchange(cuda.session, "cudaFault", args, 2));
	if (code == CUDA_ILLEGAL_ADDRESS)
		cuda_report_fault();
	return code;
}

/* For test programs: kernels that use this part of the multiprocessors, in hundredths of a percent, from now on. A client of MPS uses at
 * most its percentage. */
EXPORT int simgpu_work(long hundredths)
{
	uint32_t share = (uint32_t)hundredths;
	if (!current)
		return CUDA_INVALID_CONTEXT;
	if (share > cuda.percentage * 100)
		share = (uint32_t)(cuda.percentage * 100);
	struct arg args[] = { VALUE(current->device->handle), VALUE(current->id), VALUE(share) };
	return cuda_code(simgpu_exchange(cuda.session, "cudaWork", args, 3));
}
