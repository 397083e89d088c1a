/* Shared declarations of the simulated libcuda. */
#ifndef SIMGPU_CUDA_H
#define SIMGPU_CUDA_H

#include <stdint.h>
#include <sys/types.h>

#include "client.h"

enum {
	CUDA_SUCCESS = 0,
	CUDA_INVALID_VALUE = 1,
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_NOT_INITIALIZED = 3,
	CUDA_DEVICE_UNAVAILABLE = 46,
	CUDA_NO_DEVICE = 100,
	CUDA_INVALID_DEVICE = 101,
	CUDA_INVALID_CONTEXT = 201,
	CUDA_NOT_FOUND = 500,
	CUDA_ILLEGAL_ADDRESS = 700,
	CUDA_NOT_SUPPORTED = 801,
	CUDA_SYSTEM_DRIVER_MISMATCH = 803,
	CUDA_MPS_CONNECTION_FAILED = 805,
	CUDA_MPS_RPC_FAILURE = 806,
	CUDA_MPS_SERVER_NOT_READY = 807,
	CUDA_MPS_MAX_CLIENTS_REACHED = 808,
	CUDA_MPS_CLIENT_TERMINATED = 810,
	CUDA_UNKNOWN = 999,
};

/* The roles of contexts, with the numbers of the model. */
enum { ROLE_PLAIN = 0, ROLE_MPS_SERVER = 1, ROLE_MPS_CLIENT = 2 };

#define MAX_DEVICES 64

struct cuda_device {
	uint64_t handle;
	char uuid[96];
	uint64_t limit; /* bytes; 0: none */
};

struct cuda_state {
	pid_t owner; /* CUDA is not available in a forked child */
	uint64_t session;
	int count;
	struct cuda_device devices[MAX_DEVICES];
	uint32_t role;
	uint64_t server; /* the key of the MPS server */
	double percentage;
};

extern struct cuda_state cuda;

/* cuda_device.c: fills in the devices; a CUDA code. */
int cuda_find_devices(void);
/* cuda_device.c: CUDA_NOT_INITIALIZED before cuInit has succeeded, and in a forked child. */
int cuda_ready(void);
int cuda_device_of(int ordinal, struct cuda_device **found);
int cuda_code(int nvml);

/* cuda_mps.c: becomes a client of the MPS server, if there is a control daemon. */
int cuda_join_mps(void);

/* cuda_mps.c: reports a fatal fault of this client to its server. */
void cuda_report_fault(void);

#endif
