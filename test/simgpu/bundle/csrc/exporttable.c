/* The export table through which NVIDIA's own nvidia-smi reaches functions that
 * have no symbol. Its first word is its size in bytes; most slots may answer
 * success and do nothing. */
#include <stddef.h>
#include <string.h>

#include "client.h"

#define SLOTS 512

enum { SLOT_DEVICE = 81, SLOT_SET_TIME_SLICE = 192, SLOT_GET_TIME_SLICE = 193 };

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

static int set_time_slice(void *device, unsigned int slice)
{
	struct arg args[] = { VALUE(device), VALUE(slice) };
	return simgpu_call("exportTableSetTimeSlice", args, 2);
}

static int get_time_slice(void *device, unsigned int *slice)
{
	struct arg args[] = { VALUE(device), ROOM(slice, sizeof *slice) };
	return simgpu_call("exportTableGetTimeSlice", args, 2);
}

static const void *table[SLOTS];

__attribute__((constructor)) static void fill_table(void)
{
	for (int i = 1; i < SLOTS; i++)
		table[i] = (const void *)nothing;
	table[0] = (const void *)sizeof table;
	table[SLOT_DEVICE] = (const void *)device_by_index;
	table[SLOT_SET_TIME_SLICE] = (const void *)set_time_slice;
	table[SLOT_GET_TIME_SLICE] = (const void *)get_time_slice;
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
