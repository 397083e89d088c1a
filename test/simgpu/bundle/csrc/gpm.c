/* GPM: sends only the requested part of the large struct of nvmlGpmMetricsGet to the daemon. */
#include <stdint.h>
#include <string.h>

#include "client.h"

#define METRICS_MAX 477
#define METRICS_VERSION 1

struct metric {
	uint32_t id;
	int32_t code;
	double value;
	const char *short_name, *long_name, *unit;
};

struct metrics {
	uint32_t version, count;
	uint64_t first, second;
	struct metric list[];
};

struct answer {
	int32_t code;
	uint32_t padding;
	double value;
};

EXPORT int nvmlGpmMetricsGet(struct metrics *metrics)
{
	uint32_t ids[METRICS_MAX];
	struct answer answers[METRICS_MAX];
	if (!metrics || metrics->count > METRICS_MAX)
		return simgpu_refused(NVML_INVALID_ARGUMENT);
	if (metrics->version != METRICS_VERSION)
		return simgpu_refused(NVML_VERSION_MISMATCH);
	for (uint32_t i = 0; i < metrics->count; i++)
		ids[i] = metrics->list[i].id;
	struct arg args[] = {
		VALUE(metrics->first), VALUE(metrics->second), GIVEN(ids, metrics->count * sizeof *ids),
		ROOM(answers, metrics->count * sizeof *answers),
	};
	int code = simgpu_call("nvmlGpmMetricsGet", args, 4);
	for (uint32_t i = 0; !code && i < metrics->count; i++) {
		metrics->list[i].code = answers[i].code;
		metrics->list[i].value = answers[i].value;
		metrics->list[i].short_name = metrics->list[i].long_name = metrics->list[i].unit = NULL;
	}
	return code;
}
