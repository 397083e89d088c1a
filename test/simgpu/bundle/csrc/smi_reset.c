/* -r: the reset of GPUs, for which NVML exports no function. */
#include <stdio.h>

#include "smi.h"

enum { SLOT_RESET = 511, IN_USE = 19 };

static void print_in_use(unsigned int count)
{
	printf("\n%u device%s currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics application such as an X server, "
	       "or a monitoring application such as another instance of nvidia-smi). Please first kill all processes using %s and all compute applications running in the system.\n",
	       count, count == 1 ? " is" : "s are", count == 1 ? "this device" : "these devices");
}

int reset_gpus(const struct node *node)
{
	void *const *table = NULL;
	int codes[MAX_GPUS];
	unsigned int failed = 0, in_use = 0;
	int code = nvml.InternalGetExportTable((const void **)&table, export_table_id);
	if (code)
		return code;
	int (*reset)(device_t) = (int (*)(device_t))table[SLOT_RESET];
	for (unsigned int i = 0; i < node->count; i++) {
		codes[i] = reset(node->gpus[i].handle);
		failed += codes[i] != EXIT_OK;
		in_use += codes[i] == IN_USE;
		if (!codes[i])
			printf("GPU %s was successfully reset.\n", node->gpus[i].pci.address);
	}
	if (!failed)
		return EXIT_OK;
	printf("The following GPUs could not be reset:\n");
	for (unsigned int i = 0; i < node->count; i++)
		if (codes[i])
			printf("  GPU %s: %s\n", node->gpus[i].pci.address, nvml.ErrorString(codes[i]));
	if (in_use)
		print_in_use(in_use);
	return EXIT_UNKNOWN;
}
