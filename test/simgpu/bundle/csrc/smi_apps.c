/* The processes on the GPUs: --query-compute-apps, and the last part of the table. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "smi.h"

#define MAX_PROCESSES 256
#define MAX_FIELDS 16

enum { NOT_SUPPORTED = 3, NONE = 0xffffffff };

/* A process of a GPU; a client of MPS is of type M+C. */
struct app {
	process_t process;
	const char *type;
};

struct apps {
	struct app list[MAX_PROCESSES];
	unsigned int count;
};

typedef int (*lister)(device_t, unsigned int *, process_t *);

static void add(struct apps *apps, device_t device, lister list, const char *type)
{
	static process_t found[MAX_PROCESSES];
	unsigned int count = MAX_PROCESSES;
	if (list(device, &count, found))
		return;
	for (unsigned int i = 0; i < count && apps->count < MAX_PROCESSES; i++)
		apps->list[apps->count++] = (struct app){ .process = found[i], .type = type };
}

static void add_device(struct apps *apps, device_t device)
{
	add(apps, device, nvml.DeviceGetComputeRunningProcesses_v3, "C");
	add(apps, device, nvml.DeviceGetMPSComputeRunningProcesses_v3, "M+C");
}

/* In MIG mode these are the processes of the MIG devices. */
static void list_apps(const struct gpu *gpu, struct apps *apps)
{
	unsigned int mig = 0, pending, most = 0;
	device_t device;
	apps->count = 0;
	if (nvml.DeviceGetMigMode(gpu->handle, &mig, &pending) || !mig) {
		add_device(apps, gpu->handle);
		return;
	}
	if (nvml.DeviceGetMaxMigDeviceCount(gpu->handle, &most))
		return;
	for (unsigned int i = 0; i < most; i++)
		if (!nvml.DeviceGetMigDeviceHandleByIndex(gpu->handle, i, &device))
			add_device(apps, device);
}

static void read_name(const struct app *app, char *out, unsigned int size)
{
	if (nvml.SystemGetProcessName(app->process.pid, out, size))
		snprintf(out, size, "[Not Found]");
}

static void instance(unsigned int id, char *out)
{
	if (id == NONE)
		snprintf(out, 16, "N/A");
	else
		snprintf(out, 16, "%u", id);
}

int print_processes(const struct node *node)
{
	static struct apps apps;
	int printed = 0;
	for (unsigned int i = 0; i < node->count; i++) {
		list_apps(&node->gpus[i], &apps);
		for (unsigned int k = 0; k < apps.count; k++, printed++) {
			const struct app *app = &apps.list[k];
			char name[512], shown[40], gi[16], ci[16], used[32];
			read_name(app, name, sizeof name);
			size_t length = strlen(name);
			if (length > 36)
				snprintf(shown, sizeof shown, "...%s", name + length - 33);
			else
				snprintf(shown, sizeof shown, "%s", name);
			instance(app->process.gi, gi);
			instance(app->process.ci, ci);
			snprintf(used, sizeof used, app->process.used == ~0ULL ? "N/A" : "%lluMiB", app->process.used / MIB);
			printf("| %4u  %4s %4s %16u %6s   %-36s %8s |\n", node->gpus[i].index, gi, ci, app->process.pid, app->type, shown, used);
		}
	}
	return printed;
}

enum field { TIMESTAMP, GPU_NAME, BUS_ID, SERIAL, UUID, PID, NAME, USED };

static const struct {
	const char *name, *alias, *unit;
	enum field field;
} fields[] = {
	{ "timestamp", "", "", TIMESTAMP }, { "gpu_name", "", "", GPU_NAME },     { "gpu_bus_id", "", "", BUS_ID },
	{ "gpu_serial", "", "", SERIAL },   { "gpu_uuid", "", "", UUID },         { "pid", "", "", PID },
	{ "process_name", "name", "", NAME }, { "used_gpu_memory", "used_memory", "MiB", USED },
};

/* Splits at commas, without blanks; returns how many, or -1. */
static int parse_fields(char *text, unsigned int *wanted)
{
	int count = 0;
	char *rest = NULL;
	for (char *name = strtok_r(text, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
		unsigned int i = 0;
		while (i < sizeof fields / sizeof *fields && strcmp(name, fields[i].name) && (!*fields[i].alias || strcmp(name, fields[i].alias)))
			i++;
		if (i == sizeof fields / sizeof *fields || count == MAX_FIELDS) {
			printf("Field \"%s\" is not a valid field to query.\n\n", name);
			return -1;
		}
		wanted[count++] = i;
	}
	return count;
}

static int read_field(const struct gpu *gpu, const struct app *app, enum field field, char *out, unsigned int size)
{
	switch (field) {
	case TIMESTAMP:
		read_timestamp(out);
		return 0;
	case GPU_NAME:
		return nvml.DeviceGetName(gpu->handle, out, size);
	case BUS_ID:
		snprintf(out, size, "%s", gpu->pci.address);
		return 0;
	case SERIAL:
		return nvml.DeviceGetSerial(gpu->handle, out, size);
	case UUID:
		return nvml.DeviceGetUUID(gpu->handle, out, size);
	case PID:
		snprintf(out, size, "%u", app->process.pid);
		return 0;
	case NAME:
		read_name(app, out, size);
		return 0;
	default:
		if (app->process.used == ~0ULL)
			return NOT_SUPPORTED;
		snprintf(out, size, "%llu", app->process.used / MIB);
		return 0;
	}
}

static void print_app(const struct gpu *gpu, const struct app *app, const unsigned int *wanted, int count, int units)
{
	for (int i = 0; i < count; i++) {
		char text[512] = "";
		int code = read_field(gpu, app, fields[wanted[i]].field, text, sizeof text);
		printf("%s", i ? ", " : "");
		if (code)
			print_missing(code);
		else
			printf("%s%s%s", text, units && *fields[wanted[i]].unit ? " " : "", units ? fields[wanted[i]].unit : "");
	}
	printf("\n");
}

int query_apps(const struct node *node, const char *text, const char *format)
{
	static struct apps apps;
	char copy[4096];
	unsigned int wanted[MAX_FIELDS];
	if (!format || strncmp(format, "csv", 3)) {
		printf("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n\n");
		return EXIT_USAGE;
	}
	snprintf(copy, sizeof copy, "%s", text);
	int count = parse_fields(copy, wanted), units = !strstr(format, "nounits");
	if (count <= 0)
		return EXIT_USAGE;
	for (int i = 0; i < count && !strstr(format, "noheader"); i++)
		printf("%s%s%s%s%s%s", i ? ", " : "", fields[wanted[i]].name, *fields[wanted[i]].unit ? " [" : "", fields[wanted[i]].unit,
		       *fields[wanted[i]].unit ? "]" : "", i == count - 1 ? "\n" : "");
	for (unsigned int i = 0; i < node->count; i++) {
		list_apps(&node->gpus[i], &apps);
		for (unsigned int k = 0; k < apps.count; k++)
			print_app(&node->gpus[i], &apps.list[k], wanted, count, units);
	}
	return EXIT_OK;
}
