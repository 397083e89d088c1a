/* --query-gpu: one CSV line for each GPU. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "smi.h"

#define MAX_FIELDS 64

enum { NOT_SUPPORTED = 3 };

typedef int (*reader)(const struct gpu *, char *);

#define NUMBER(function, type, form, expression)                       \
	static int read_##function(const struct gpu *gpu, char *out)   \
	{                                                              \
		type v;                                                \
		int code = nvml.function(gpu->handle, &v);             \
		if (!code)                                             \
			snprintf(out, TEXT, form, expression);         \
		return code;                                           \
	}
#define STRING_OF(function)                                            \
	static int read_##function(const struct gpu *gpu, char *out)   \
	{                                                              \
		return nvml.function(gpu->handle, out, TEXT);          \
	}

STRING_OF(DeviceGetName)
STRING_OF(DeviceGetUUID)
NUMBER(DeviceGetComputeMode, unsigned int, "%s", compute_mode_name(v))
NUMBER(DeviceGetFanSpeed, unsigned int, "%u", v)
NUMBER(DeviceGetPowerUsage, unsigned int, "%.2f", v / 1000.0)

static int read_index(const struct gpu *gpu, char *out)
{
	snprintf(out, TEXT, "%u", gpu->index);
	return 0;
}

static int read_driver(const struct gpu *gpu, char *out)
{
	(void)gpu;
	return nvml.SystemGetDriverVersion(out, TEXT);
}

static int read_address(const struct gpu *gpu, char *out)
{
	snprintf(out, TEXT, "%s", gpu->pci.address);
	return 0;
}

#define MEMORY(part)                                                   \
	static int read_memory_##part(const struct gpu *gpu, char *out) \
	{                                                              \
		memory_t probe;                                        \
		int code = nvml.DeviceGetMemoryInfo(gpu->handle, &probe); \
		if (!code)                                             \
			snprintf(out, TEXT, "%llu", read_memory(gpu->handle).part / MIB); \
		return code;                                           \
	}

MEMORY(total)
MEMORY(used)
MEMORY(free)

static int read_gpu_utilization(const struct gpu *gpu, char *out)
{
	utilization_t u;
	int code = nvml.DeviceGetUtilizationRates(gpu->handle, &u);
	if (!code)
		snprintf(out, TEXT, "%u", u.gpu);
	return code;
}

static int read_temperature(const struct gpu *gpu, char *out)
{
	unsigned int celsius;
	int code = nvml.DeviceGetTemperature(gpu->handle, 0, &celsius);
	if (!code)
		snprintf(out, TEXT, "%u", celsius);
	return code;
}

static int read_capability(const struct gpu *gpu, char *out)
{
	int major, minor;
	int code = nvml.DeviceGetCudaComputeCapability(gpu->handle, &major, &minor);
	if (!code)
		snprintf(out, TEXT, "%d.%d", major, minor);
	return code;
}

static int read_mode(const struct gpu *gpu, char *out, int pending)
{
	unsigned int modes[2];
	int code = nvml.DeviceGetMigMode(gpu->handle, &modes[0], &modes[1]);
	if (!code)
		snprintf(out, TEXT, "%s", modes[pending] ? "Enabled" : "Disabled");
	return code;
}

static int read_mig(const struct gpu *gpu, char *out)
{
	return read_mode(gpu, out, 0);
}

static int read_mig_pending(const struct gpu *gpu, char *out)
{
	return read_mode(gpu, out, 1);
}

#define SM_CLOCK(function)                                             \
	static int read_##function(const struct gpu *gpu, char *out)   \
	{                                                              \
		unsigned int mhz;                                      \
		int code = nvml.function(gpu->handle, 1, &mhz);        \
		if (!code)                                             \
			snprintf(out, TEXT, "%u", mhz);                \
		return code;                                           \
	}

SM_CLOCK(DeviceGetClockInfo)
SM_CLOCK(DeviceGetMaxClockInfo)

struct field {
	const char *name, *alias, *unit;
	reader read;
};

static const struct field fields[] = {
	{ "index", "", "", read_index },
	{ "name", "gpu_name", "", read_DeviceGetName },
	{ "uuid", "gpu_uuid", "", read_DeviceGetUUID },
	{ "driver_version", "", "", read_driver },
	{ "pci.bus_id", "gpu_bus_id", "", read_address },
	{ "memory.total", "", "MiB", read_memory_total },
	{ "memory.used", "", "MiB", read_memory_used },
	{ "memory.free", "", "MiB", read_memory_free },
	{ "compute_mode", "", "", read_DeviceGetComputeMode },
	{ "utilization.gpu", "", "%", read_gpu_utilization },
	{ "temperature.gpu", "", "", read_temperature },
	{ "fan.speed", "", "%", read_DeviceGetFanSpeed },
	{ "power.draw", "", "W", read_DeviceGetPowerUsage },
	{ "compute_cap", "", "", read_capability },
	{ "mig.mode.current", "", "", read_mig },
	{ "mig.mode.pending", "", "", read_mig_pending },
	{ "clocks.current.sm", "clocks.sm", "MHz", read_DeviceGetClockInfo },
	{ "clocks.max.sm", "", "MHz", read_DeviceGetMaxClockInfo },
};

static const struct field *find_field(const char *name)
{
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (!strcmp(name, fields[i].name) || (*fields[i].alias && !strcmp(name, fields[i].alias)))
			return &fields[i];
	return NULL;
}

/* Splits at commas, without blanks; returns how many, or -1. */
static int parse_fields(char *text, const struct field **wanted)
{
	int count = 0;
	char *rest = NULL;
	for (char *name = strtok_r(text, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
		const struct field *field = find_field(name);
		if (!field || count == MAX_FIELDS) {
			printf("Field \"%s\" is not a valid field to query.\n\n", name);
			return -1;
		}
		wanted[count++] = field;
	}
	return count;
}

/* The header names units, with nounits too. */
static void print_header(const struct field **wanted, int count)
{
	for (int i = 0; i < count; i++) {
		printf("%s%s", i ? ", " : "", wanted[i]->name);
		if (*wanted[i]->unit)
			printf(" [%s]", wanted[i]->unit);
	}
	printf("\n");
}

static void print_gpu(const struct gpu *gpu, const struct field **wanted, int count, int units)
{
	for (int i = 0; i < count; i++) {
		char text[TEXT] = "";
		int code = wanted[i]->read(gpu, text);
		printf("%s", i ? ", " : "");
		if (code)
			print_missing(code);
		else
			printf("%s%s%s", text, units && *wanted[i]->unit ? " " : "", units ? wanted[i]->unit : "");
	}
	printf("\n");
}

void print_missing(int code)
{
	printf("[%s]", code == NOT_SUPPORTED ? "N/A" : nvml.ErrorString(code));
}

void read_timestamp(char *out)
{
	struct timespec now;
	struct tm parts;
	char date[32];
	clock_gettime(CLOCK_REALTIME, &now);
	strftime(date, sizeof date, "%Y/%m/%d %H:%M:%S", localtime_r(&now.tv_sec, &parts));
	snprintf(out, TEXT, "%s.%03ld", date, now.tv_nsec / 1000000);
}

int query_gpus(const struct node *node, const char *text, const char *format)
{
	char copy[4096];
	const struct field *wanted[MAX_FIELDS];
	if (!format || strncmp(format, "csv", 3)) {
		printf("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n\n");
		return EXIT_USAGE;
	}
	snprintf(copy, sizeof copy, "%s", text);
	int count = parse_fields(copy, wanted), units = !strstr(format, "nounits");
	if (count <= 0)
		return EXIT_USAGE;
	if (!strstr(format, "noheader"))
		print_header(wanted, count);
	for (unsigned int i = 0; i < node->count; i++)
		print_gpu(&node->gpus[i], wanted, count, units);
	return EXIT_OK;
}
