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
STRING_OF(DeviceGetSerial)
STRING_OF(DeviceGetVbiosVersion)
NUMBER(DeviceGetComputeMode, unsigned int, "%s", compute_mode_name(v))
NUMBER(DeviceGetPersistenceMode, unsigned int, "%s", v ? "Enabled" : "Disabled")
NUMBER(DeviceGetFanSpeed, unsigned int, "%u", v)
NUMBER(DeviceGetPowerUsage, unsigned int, "%.2f", v / 1000.0)
NUMBER(DeviceGetEnforcedPowerLimit, unsigned int, "%.2f", v / 1000.0)
NUMBER(DeviceGetPerformanceState, unsigned int, "P%u", v)

static int read_index(const struct gpu *gpu, char *out)
{
	snprintf(out, TEXT, "%u", gpu->index);
	return 0;
}

static int read_count(const struct gpu *gpu, char *out)
{
	unsigned int count;
	int code = nvml.DeviceGetCount_v2(&count);
	(void)gpu;
	if (!code)
		snprintf(out, TEXT, "%u", count);
	return code;
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

static int read_device_id(const struct gpu *gpu, char *out)
{
	snprintf(out, TEXT, "0x%08X", gpu->pci.id);
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

static int read_utilization(const struct gpu *gpu, char *out, int memory)
{
	utilization_t u;
	int code = nvml.DeviceGetUtilizationRates(gpu->handle, &u);
	if (!code)
		snprintf(out, TEXT, "%u", memory ? u.memory : u.gpu);
	return code;
}

static int read_gpu_utilization(const struct gpu *gpu, char *out)
{
	return read_utilization(gpu, out, 0);
}

static int read_memory_utilization(const struct gpu *gpu, char *out)
{
	return read_utilization(gpu, out, 1);
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

static int read_mig(const struct gpu *gpu, char *out)
{
	unsigned int current, pending;
	int code = nvml.DeviceGetMigMode(gpu->handle, &current, &pending);
	if (!code)
		snprintf(out, TEXT, "%s", current ? "Enabled" : "Disabled");
	return code;
}

#define CLOCK(suffix, function, type)                                  \
	static int read_clock_##suffix(const struct gpu *gpu, char *out) \
	{                                                              \
		unsigned int mhz;                                      \
		int code = nvml.function(gpu->handle, type, &mhz);     \
		if (!code)                                             \
			snprintf(out, TEXT, "%u", mhz);                \
		return code;                                           \
	}

CLOCK(graphics, DeviceGetClockInfo, 0)
CLOCK(sm, DeviceGetClockInfo, 1)
CLOCK(memory, DeviceGetClockInfo, 2)
CLOCK(video, DeviceGetClockInfo, 3)
CLOCK(max_graphics, DeviceGetMaxClockInfo, 0)
CLOCK(max_sm, DeviceGetMaxClockInfo, 1)
CLOCK(max_memory, DeviceGetMaxClockInfo, 2)

/* The first of two values, the second of which is the sampling period or the pending mode. */
#define FIRST_OF(suffix, function, form, expression)                   \
	static int read_##suffix(const struct gpu *gpu, char *out)     \
	{                                                              \
		unsigned int v, w;                                     \
		int code = nvml.function(gpu->handle, &v, &w);         \
		(void)w;                                               \
		if (!code)                                             \
			snprintf(out, TEXT, form, expression);         \
		return code;                                           \
	}

FIRST_OF(encoder, DeviceGetEncoderUtilization, "%u", v)
FIRST_OF(decoder, DeviceGetDecoderUtilization, "%u", v)
FIRST_OF(ecc, DeviceGetEccMode, "%s", v ? "Enabled" : "Disabled")
FIRST_OF(ecc_pending, DeviceGetEccMode, "%s", w ? "Enabled" : "Disabled")
FIRST_OF(mig_pending, DeviceGetMigMode, "%s", w ? "Enabled" : "Disabled")
NUMBER(DeviceGetCurrPcieLinkGeneration, unsigned int, "%u", v)
NUMBER(DeviceGetMaxPcieLinkGeneration, unsigned int, "%u", v)
NUMBER(DeviceGetCurrPcieLinkWidth, unsigned int, "%u", v)
NUMBER(DeviceGetMaxPcieLinkWidth, unsigned int, "%u", v)
NUMBER(DeviceGetCurrentClocksThrottleReasons, unsigned long long, "0x%016llX", v)

static int read_ecc_errors(const struct gpu *gpu, char *out, unsigned int type)
{
	unsigned long long count;
	int code = nvml.DeviceGetTotalEccErrors(gpu->handle, type, 0, &count);
	if (!code)
		snprintf(out, TEXT, "%llu", count);
	return code;
}

static int read_corrected(const struct gpu *gpu, char *out)
{
	return read_ecc_errors(gpu, out, 0);
}

static int read_uncorrected(const struct gpu *gpu, char *out)
{
	return read_ecc_errors(gpu, out, 1);
}

/* Values that the library only reports as fields. */
static int read_value(const struct gpu *gpu, unsigned int id, unsigned int *out)
{
	field_value_t value = { .id = id };
	int code = nvml.DeviceGetFieldValues(gpu->handle, 1, &value);
	if (!code)
		code = value.code;
	*out = value.value.u32;
	return code;
}

static int read_memory_temperature(const struct gpu *gpu, char *out)
{
	unsigned int celsius;
	int code = read_value(gpu, 82, &celsius);
	if (!code)
		snprintf(out, TEXT, "%u", celsius);
	return code;
}

static int read_instant_power(const struct gpu *gpu, char *out)
{
	unsigned int milliwatts;
	int code = read_value(gpu, 186, &milliwatts);
	if (!code)
		snprintf(out, TEXT, "%.2f", milliwatts / 1000.0);
	return code;
}

static int read_reserved(const struct gpu *gpu, char *out)
{
	memory_v2_t v2 = { .version = sizeof v2 | 2 << 24 };
	int code = nvml.DeviceGetMemoryInfo_v2(gpu->handle, &v2);
	if (!code)
		snprintf(out, TEXT, "%llu", v2.reserved / MIB);
	return code;
}

static int read_time(const struct gpu *gpu, char *out)
{
	(void)gpu;
	read_timestamp(out);
	return 0;
}

struct field {
	const char *name, *alias, *unit;
	reader read;
};

static const struct field fields[] = {
	{ "index", "", "", read_index },
	{ "count", "", "", read_count },
	{ "name", "gpu_name", "", read_DeviceGetName },
	{ "uuid", "gpu_uuid", "", read_DeviceGetUUID },
	{ "serial", "gpu_serial", "", read_DeviceGetSerial },
	{ "vbios_version", "", "", read_DeviceGetVbiosVersion },
	{ "driver_version", "", "", read_driver },
	{ "pci.bus_id", "gpu_bus_id", "", read_address },
	{ "pci.device_id", "", "", read_device_id },
	{ "memory.total", "", "MiB", read_memory_total },
	{ "memory.used", "", "MiB", read_memory_used },
	{ "memory.free", "", "MiB", read_memory_free },
	{ "compute_mode", "", "", read_DeviceGetComputeMode },
	{ "persistence_mode", "", "", read_DeviceGetPersistenceMode },
	{ "utilization.gpu", "", "%", read_gpu_utilization },
	{ "utilization.memory", "", "%", read_memory_utilization },
	{ "temperature.gpu", "", "", read_temperature },
	{ "fan.speed", "", "%", read_DeviceGetFanSpeed },
	{ "power.draw", "", "W", read_DeviceGetPowerUsage },
	{ "power.limit", "enforced.power.limit", "W", read_DeviceGetEnforcedPowerLimit },
	{ "pstate", "", "", read_DeviceGetPerformanceState },
	{ "compute_cap", "", "", read_capability },
	{ "mig.mode.current", "", "", read_mig },
	{ "mig.mode.pending", "", "", read_mig_pending },
	{ "timestamp", "", "", read_time },
	{ "memory.reserved", "", "MiB", read_reserved },
	{ "utilization.encoder", "", "%", read_encoder },
	{ "utilization.decoder", "", "%", read_decoder },
	{ "temperature.memory", "", "", read_memory_temperature },
	{ "power.draw.instant", "", "W", read_instant_power },
	{ "clocks.current.graphics", "clocks.gr", "MHz", read_clock_graphics },
	{ "clocks.current.sm", "clocks.sm", "MHz", read_clock_sm },
	{ "clocks.current.memory", "clocks.mem", "MHz", read_clock_memory },
	{ "clocks.current.video", "clocks.video", "MHz", read_clock_video },
	{ "clocks.max.graphics", "clocks.max.gr", "MHz", read_clock_max_graphics },
	{ "clocks.max.sm", "", "MHz", read_clock_max_sm },
	{ "clocks.max.memory", "clocks.max.mem", "MHz", read_clock_max_memory },
	{ "clocks_event_reasons.active", "clocks_throttle_reasons.active", "", read_DeviceGetCurrentClocksThrottleReasons },
	{ "ecc.mode.current", "", "", read_ecc },
	{ "ecc.mode.pending", "", "", read_ecc_pending },
	{ "ecc.errors.corrected.volatile.total", "", "", read_corrected },
	{ "ecc.errors.uncorrected.volatile.total", "", "", read_uncorrected },
	{ "pcie.link.gen.current", "", "", read_DeviceGetCurrPcieLinkGeneration },
	{ "pcie.link.gen.max", "", "", read_DeviceGetMaxPcieLinkGeneration },
	{ "pcie.link.width.current", "", "", read_DeviceGetCurrPcieLinkWidth },
	{ "pcie.link.width.max", "", "", read_DeviceGetMaxPcieLinkWidth },
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
