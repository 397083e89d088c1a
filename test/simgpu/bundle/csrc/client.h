/* The thin NVML client: every call is one request to the node's daemon. */
#ifndef SIMGPU_CLIENT_H
#define SIMGPU_CLIENT_H

#include <stdint.h>

/* The return codes that the library returns itself. */
enum {
	NVML_SUCCESS = 0,
	NVML_UNINITIALIZED = 1,
	NVML_INVALID_ARGUMENT = 2,
	NVML_NO_PERMISSION = 4,
	NVML_INSUFFICIENT_SIZE = 7,
	NVML_DRIVER_NOT_LOADED = 9,
	NVML_FUNCTION_NOT_FOUND = 13,
	NVML_OPERATING_SYSTEM = 17,
	NVML_VERSION_MISMATCH = 25,
	NVML_UNKNOWN = 999,
};

/* Directions, with the numbers of the wire. */
enum { ARG_IN = 0, ARG_OUT = 1, ARG_INOUT = 2 };

struct arg {
	uint8_t direction;
	uint32_t size;
	void *bytes;
};

#define EXPORT __attribute__((visibility("default")))
#define VALUE(v) ((struct arg){ ARG_IN, sizeof(v), &(v) })
#define STRING(s) ((struct arg){ ARG_IN, (uint32_t)strlen(s), (void *)(s) })
#define GIVEN(p, n) ((struct arg){ ARG_IN, (uint32_t)(n), (void *)(p) })
#define ROOM(p, n) ((struct arg){ ARG_OUT, (uint32_t)(n), (p) })
#define EXCHANGE(p, n) ((struct arg){ ARG_INOUT, (uint32_t)(n), (p) })

/* Calls the daemon inside the session of this process. */
int simgpu_call(const char *name, struct arg *args, int count);

/* The return code of a call that the library itself refuses: code, or an error if the library is not initialised. */
int simgpu_refused(int code);

/* The size in a versioned struct; 0 if it is invalid. */
uint32_t simgpu_struct_size(const void *versioned);

/* The size of an array of count elements; 0 if the count is out of all bounds. */
uint32_t simgpu_array_size(const void *elements, unsigned int count, uint32_t element);

/* transport.c */
int simgpu_exchange(uint64_t session, const char *name, struct arg *args, int count);

/* The minors of the device nodes that this process can open: nodes of GPUs, and of MIG capabilities. A driver has two capabilities, and 135
 * for each of 32 GPUs. */
#define MAX_MINORS 256
#define MAX_CAPABILITIES (3 + 32 * 135)

struct visible {
	uint8_t minors[MAX_MINORS];
	uint32_t minor_count;
	uint32_t capabilities[MAX_CAPABILITIES];
	uint32_t capability_count;
};

/* place.c: the root below which this library lies ("" for /), and the device nodes of this process; not 0 without a control node. */
const char *simgpu_root(void);
int simgpu_look(struct visible *visible);

/* Open the device nodes of GPUs, and close them: a process that uses GPUs has them open. Not safe for concurrent use. */
void simgpu_open_nodes(const struct visible *visible);
void simgpu_close_nodes(void);

#endif
