/* Initialisation, and NVML's answers without its driver. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client.h"

/* starting is held while the daemon answers an initialisation, which may take
 * for ever; lock only for a moment, so that other calls never wait behind it. */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int users; /* initialisations minus shutdowns */
static uint64_t session;

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	pthread_mutex_unlock(&lock);
	starting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

static uint64_t current_session(void)
{
	pthread_mutex_lock(&lock);
	uint64_t s = users ? session : 0;
	pthread_mutex_unlock(&lock);
	return s;
}

int simgpu_call(const char *name, struct arg *args, int count)
{
	uint64_t s = current_session();
	if (!s)
		return NVML_UNINITIALIZED;
	for (int i = 0; i < count; i++)
		if (!args[i].bytes && args[i].size)
			return NVML_INVALID_ARGUMENT;
	return simgpu_exchange(s, name, args, count);
}

int simgpu_refused(int code)
{
	return current_session() ? code : NVML_UNINITIALIZED;
}

/* The library's own version, which it knows without the driver. */
EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	struct arg args[] = { ROOM(version, length) };
	if (current_session())
		return simgpu_call("nvmlSystemGetNVMLVersion", args, 1);
	if (!version)
		return NVML_INVALID_ARGUMENT;
	int written = snprintf(version, length, "%d.%s", SIMGPU_CUDA / 1000, SIMGPU_DRIVER);
	return (unsigned int)written < length ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

uint32_t simgpu_struct_size(const void *versioned)
{
	uint32_t version;
	if (!versioned)
		return 0;
	memcpy(&version, versioned, sizeof version);
	uint32_t size = version & 0xffffff;
	return size >= sizeof version && size <= 0xffff ? size : 0;
}

uint32_t simgpu_array_size(const void *elements, unsigned int count, uint32_t element)
{
	return elements && count <= 0xffff / element ? count * element : 0;
}

static int begin(const char *name)
{
	struct visible seen;
	if (simgpu_look(&seen))
		return NVML_DRIVER_NOT_LOADED;
	pthread_mutex_lock(&starting);
	uint64_t s = current_session();
	struct arg args[] = {
		STRING(SIMGPU_DRIVER), GIVEN(seen.minors, seen.minor_count),
		GIVEN(seen.capabilities, seen.capability_count * sizeof *seen.capabilities), ROOM(&s, sizeof s),
	};
	int code = simgpu_exchange(s, name, args, 4);
	if (code == NVML_SUCCESS) {
		pthread_mutex_lock(&lock);
		session = s;
		if (!users++)
			simgpu_open_nodes(&seen);
		pthread_mutex_unlock(&lock);
	}
	pthread_mutex_unlock(&starting);
	return code;
}

EXPORT int nvmlInit(void)
{
	return begin("nvmlInit");
}

EXPORT int nvmlInit_v2(void)
{
	return begin("nvmlInit_v2");
}

EXPORT int nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	return begin("nvmlInitWithFlags");
}

/* A shutdown succeeds even if the driver is gone, as the session is over then, and if there was no session. */
EXPORT int nvmlShutdown(void)
{
	pthread_mutex_lock(&lock);
	uint64_t s = session;
	int uninitialized = !users;
	uint32_t left = uninitialized ? 0 : --users;
	if (!uninitialized && !left)
		simgpu_close_nodes();
	pthread_mutex_unlock(&lock);
	if (uninitialized)
		return NVML_SUCCESS;
	struct arg args[] = { VALUE(left) };
	simgpu_exchange(s, "nvmlShutdown", args, 1);
	return NVML_SUCCESS;
}
