/* compute-policy: the time-slice interval, for which NVML exports no function. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

const unsigned char export_table_id[16] = {
	0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
};

enum { SLOT_SET_POLICY = 192, SLOT_GET_POLICIES = 193, POLICY_TIME_SLICE = 0 };

struct policy {
	unsigned int kind, value;
};

struct policies {
	unsigned int count;
	struct policy policies[16];
};

static const char *const slices[] = { "Default", "Short", "Medium", "Long" };

static int set_slice(void *const *table, const struct node *node, const char *text)
{
	int (*set)(device_t, struct policy *) = (int (*)(device_t, struct policy *))table[SLOT_SET_POLICY];
	struct policy policy = { POLICY_TIME_SLICE, (unsigned int)atoi(text) };
	for (unsigned int i = 0; i < node->count; i++) {
		const char *name = policy.value < 4 ? slices[policy.value] : "Unknown";
		int code = set(node->gpus[i].handle, &policy);
		if (code) {
			printf("Failed to set timeslice policy with value %s for GPU %u : %s\n", name, node->gpus[i].index, nvml.ErrorString(code));
			printf("Failed to set timeslice for requested devices : %s\n", nvml.ErrorString(code));
			return code;
		}
		printf("Successfully set timeslice policy with value %s for GPU %u\n", name, node->gpus[i].index);
	}
	return EXIT_OK;
}

static int list_slices(void *const *table, const struct node *node)
{
	int (*get)(device_t, struct policies *) = (int (*)(device_t, struct policies *))table[SLOT_GET_POLICIES];
	printf("+-------------------------------------+\n"
	       "| GPU compute policies:               |\n"
	       "| GPU     Name           Value        |\n"
	       "|=====================================|\n");
	for (unsigned int i = 0; i < node->count; i++) {
		struct policies found = { .count = 0 };
		int code = get(node->gpus[i].handle, &found);
		if (code)
			return code;
		for (unsigned int k = 0; k < found.count && k < 16; k++)
			printf("| %3u   Timeslice       %-13s |\n+-------------------------------------+\n", node->gpus[i].index,
			       slices[found.policies[k].value & 3]);
	}
	return EXIT_OK;
}

struct options {
	int list;
	const char *id, *slice;
};

static int parse(int argc, char **argv, struct options *o)
{
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "-l") || !strcmp(argv[i], "--list"))
			o->list = 1;
		else if (!take_option(argc, argv, &i, "-i", "--id", &o->id) && !take_option(argc, argv, &i, "", "--set-timeslice", &o->slice))
			return EXIT_USAGE;
	}
	return o->list || o->slice ? EXIT_OK : EXIT_USAGE;
}

static int help(void)
{
	printf("\n    Compute Policy -- Control and list compute policies.\n\n"
	       "    Usage: nvidia-smi compute-policy [options]\n\n"
	       "    [-i | --id]: GPU device ID's. Comma separated for more than one device\n"
	       "    [-l | --list]: List all compute policies\n"
	       "    [ | --set-timeslice]: 0=DEFAULT, 1=SHORT, 2=MEDIUM, 3=LONG\n\n");
	return EXIT_OK;
}

int compute_policy(struct node *node, int argc, char **argv)
{
	struct options o = { .list = 0 };
	void *const *table = NULL;
	if (parse(argc, argv, &o))
		return help();
	int code = keep_gpus(node, o.id);
	if (!code)
		code = nvml.InternalGetExportTable((const void **)&table, export_table_id);
	if (code)
		return code;
	return o.slice ? set_slice(table, node, o.slice) : list_slices(table, node);
}
