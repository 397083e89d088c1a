/* The export table through which NVIDIA's own nvidia-smi reaches functions without a symbol. Its first word is its size in bytes; most
 * slots may answer success and do nothing. */
#include <stddef.h>
#include <string.h>

#include "client.h"

#define SLOTS 512

/* The last slot is ours: NVIDIA's nvidia-smi resets GPUs without the library. */
enum { SLOT_DEVICE = 81, SLOT_SET_POLICY = 192, SLOT_GET_POLICIES = 193, SLOT_RESET = SLOTS - 1 };

static const uint8_t table_id[16] = {
	0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
};

static int nothing(void)
{
	return NVML_SUCCESS;
}

static int device_by_index(unsigned int index, void **device, unsigned int flags)
{
	(void)flags;
	struct arg args[] = { VALUE(index), ROOM(device, sizeof *device) };
	return simgpu_call("exportTableDevice", args, 2);
}

/* A compute policy as the table's functions take it. */
struct policy {
	uint32_t kind, value;
};

enum { POLICY_TIME_SLICE = 0 };

struct policies {
	uint32_t count;
	struct policy policies[1];
};

static int set_policy(void *device, struct policy *policy)
{
	if (!policy || policy->kind != POLICY_TIME_SLICE)
		return NVML_INVALID_ARGUMENT;
	struct arg args[] = { VALUE(device), VALUE(policy->value) };
	return simgpu_call("exportTableSetTimeSlice", args, 2);
}

static int get_policies(void *device, struct policies *found)
{
	if (!found)
		return NVML_INVALID_ARGUMENT;
	struct arg args[] = { VALUE(device), ROOM(&found->policies[0].value, sizeof found->policies[0].value) };
	found->count = 1;
	found->policies[0].kind = POLICY_TIME_SLICE;
	return simgpu_call("exportTableGetTimeSlice", args, 2);
}

static int reset_gpu(void *device)
{
	struct arg args[] = { VALUE(device) };
	return simgpu_call("exportTableReset", args, 1);
}

static const void *table[SLOTS];

__attribute__((constructor)) static void fill_table(void)
{
	for (int i = 1; i < SLOTS; i++)
		table[i] = (const void *)nothing;
	table[0] = (const void *)sizeof table;
	table[SLOT_DEVICE] = (const void *)device_by_index;
	table[SLOT_SET_POLICY] = (const void *)set_policy;
	table[SLOT_GET_POLICIES] = (const void *)get_policies;
	table[SLOT_RESET] = (const void *)reset_gpu;
}

EXPORT int nvmlInternalGetExportTable(const void **found, const void *id)
{
	if (!found || !id)
		return NVML_INVALID_ARGUMENT;
	if (memcmp(id, table_id, sizeof table_id))
		return NVML_FUNCTION_NOT_FOUND;
	*found = table;
	return NVML_SUCCESS;
}
