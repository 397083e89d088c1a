/* The client side of MPS: the server's limits, which the environment can change. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"
#include "mps.h"

static int connection = -1; /* to the server, as long as this process is a client */

/* "2G" or "512M" in bytes. */
static uint64_t size_of(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);
	return value << (toupper((unsigned char)*end) == 'G' ? 30 : 20);
}

static int ordinal_of(const char *name)
{
	char *end;
	long ordinal = strtol(name, &end, 10);
	if (end != name && !*end)
		return ordinal >= 0 && ordinal < cuda.count ? (int)ordinal : -1;
	for (int i = 0; i < cuda.count; i++)
		if (!strcmp(name, cuda.devices[i].uuid))
			return i;
	return -1;
}

/* The environment lowers limits. A device that the process does not see in it
 * removes all of them, the server's too: NVIDIA documents this. */
static void apply_environment(void)
{
	const char *limits = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), *part = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	double percentage = part ? strtod(part, NULL) : 0;
	if (percentage > 0 && percentage < cuda.percentage)
		cuda.percentage = percentage;
	char *copy = limits ? strdup(limits) : NULL, *rest;
	for (char *entry = copy ? strtok_r(copy, ",", &rest) : NULL; entry; entry = strtok_r(NULL, ",", &rest)) {
		char *value = strchr(entry, '=');
		if (!value)
			continue;
		*value++ = 0;
		int ordinal = ordinal_of(entry);
		if (ordinal < 0) {
			for (int i = 0; i < cuda.count; i++)
				cuda.devices[i].limit = 0;
			break;
		}
		uint64_t bytes = size_of(value), *limit = &cuda.devices[ordinal].limit;
		if (bytes && (!*limit || bytes < *limit))
			*limit = bytes;
	}
	free(copy);
}

/* The line is "READY key percentage ordinal=bytes,…". */
static int accept_server(const char *line)
{
	unsigned long long key;
	int used = 0;
	if (!strcmp(line, "FULL"))
		return CUDA_MPS_MAX_CLIENTS_REACHED;
	if (!strcmp(line, "FAULT"))
		return CUDA_MPS_SERVER_NOT_READY;
	if (sscanf(line, "READY %llx %lf %n", &key, &cuda.percentage, &used) != 2)
		return CUDA_MPS_CONNECTION_FAILED;
	cuda.role = ROLE_MPS_CLIENT;
	cuda.server = key;
	unsigned int ordinal;
	unsigned long long bytes;
	int length;
	for (line += used; sscanf(line, "%u=%llu,%n", &ordinal, &bytes, &length) == 2; line += length)
		if (ordinal < (unsigned int)cuda.count)
			cuda.devices[ordinal].limit = bytes;
	apply_environment();
	return CUDA_SUCCESS;
}

int cuda_join_mps(void)
{
	char line[MPS_LINE];
	int fd = mps_connect("control");
	if (fd < 0)
		return CUDA_SUCCESS;
	if (mps_send(fd, "CLIENT\n", 7) || mps_read_line(fd, line, sizeof line) < 0) {
		close(fd);
		return CUDA_MPS_CONNECTION_FAILED;
	}
	int code = accept_server(line);
	if (code)
		close(fd);
	else
		connection = fd; /* it stays: its end is the client's */
	return code;
}

void cuda_report_fault(void)
{
	if (connection >= 0)
		mps_send(connection, "F", 1);
}
