/* Memory limits of cgroups: NVML names a cgroup by its directory, the driver by its id. */
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "client.h"

#define CGROUP2_MAGIC 0x63677270

struct set_limits {
	const char *cgroup;
	uint64_t soft, hard;
};

struct get_limits {
	const char *cgroup;
	uint64_t soft, hard, used;
};

static int cgroup_id(const char *path, uint64_t *id)
{
	struct stat st;
	struct statfs filesystem;
	if (!path)
		return NVML_INVALID_ARGUMENT;
	if (statfs(path, &filesystem) || filesystem.f_type != CGROUP2_MAGIC || stat(path, &st))
		return NVML_OPERATING_SYSTEM;
	*id = st.st_ino;
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceSetMemoryLimits_v1(void *device, const struct set_limits *limits)
{
	uint64_t id;
	int code = limits ? cgroup_id(limits->cgroup, &id) : NVML_INVALID_ARGUMENT;
	if (code)
		return simgpu_refused(code);
	uint64_t soft = limits->soft, hard = limits->hard;
	struct arg args[] = { VALUE(device), VALUE(id), VALUE(soft), VALUE(hard) };
	return simgpu_call("nvmlDeviceSetMemoryLimits_v1", args, 4);
}

EXPORT int nvmlDeviceGetMemoryLimits_v1(void *device, struct get_limits *limits)
{
	uint64_t id;
	int code = limits ? cgroup_id(limits->cgroup, &id) : NVML_INVALID_ARGUMENT;
	if (code)
		return simgpu_refused(code);
	struct arg args[] = {
		VALUE(device), VALUE(id), ROOM(&limits->soft, 8), ROOM(&limits->hard, 8), ROOM(&limits->used, 8),
	};
	return simgpu_call("nvmlDeviceGetMemoryLimits_v1", args, 5);
}
