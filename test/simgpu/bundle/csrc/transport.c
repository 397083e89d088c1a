/* One connection for each call in flight; idle ones are kept. A forked child
 * forgets its parent's connections and makes its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client.h"

#define IDLE_MAX 8
#define FRAME_MAX (1u << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int idle[IDLE_MAX];
static int idle_count;
static pid_t idle_owner;

static void forget_if_forked(void)
{
	pid_t self = getpid();
	if (idle_owner == self)
		return;
	for (int i = 0; i < idle_count; i++)
		close(idle[i]);
	idle_count = 0;
	idle_owner = self;
}

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

__attribute__((destructor)) static void hang_up(void)
{
	for (int i = 0; i < idle_count && idle_owner == getpid(); i++)
		close(idle[i]);
	idle_count = 0;
}

static int take_idle(void)
{
	int fd = -1;
	pthread_mutex_lock(&lock);
	forget_if_forked();
	if (idle_count)
		fd = idle[--idle_count];
	pthread_mutex_unlock(&lock);
	return fd;
}

static void give_back(int fd)
{
	pthread_mutex_lock(&lock);
	forget_if_forked();
	if (idle_count < IDLE_MAX) {
		idle[idle_count++] = fd;
		fd = -1;
	}
	pthread_mutex_unlock(&lock);
	if (fd >= 0)
		close(fd);
}

/* Returns a connection, or minus an NVML code. */
static int dial(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/run/nvidia-persistenced/socket", simgpu_root());
	if (length >= (int)sizeof address.sun_path)
		return -NVML_DRIVER_NOT_LOADED;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -NVML_UNKNOWN;
	int failed;
	do
		failed = connect(fd, (struct sockaddr *)&address, sizeof address);
	while (failed && errno == EINTR);
	if (!failed)
		return fd;
	int code = errno == EACCES || errno == EPERM ? NVML_NO_PERMISSION : NVML_DRIVER_NOT_LOADED;
	close(fd);
	return -code;
}

static int write_all(int fd, const uint8_t *bytes, size_t n)
{
	while (n) {
		ssize_t k = send(fd, bytes, n, MSG_NOSIGNAL);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -1;
		bytes += k;
		n -= (size_t)k;
	}
	return 0;
}

static int read_all(int fd, uint8_t *bytes, size_t n)
{
	while (n) {
		ssize_t k = read(fd, bytes, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -1;
		bytes += k;
		n -= (size_t)k;
	}
	return 0;
}

static size_t request_size(const char *name, const struct arg *args, int count)
{
	size_t size = 4 + 8 + 1 + strlen(name) + 1;
	for (int i = 0; i < count; i++)
		size += 1 + 4 + (args[i].direction == ARG_OUT ? 0 : args[i].size);
	return size;
}

static uint8_t *append(uint8_t *to, const void *bytes, size_t n)
{
	memcpy(to, bytes, n);
	return to + n;
}

static void write_request(uint8_t *frame, size_t size, uint64_t session, const char *name, const struct arg *args, int count)
{
	uint32_t length = (uint32_t)(size - 4);
	uint8_t name_length = (uint8_t)strlen(name), args_count = (uint8_t)count;
	frame = append(frame, &length, 4);
	frame = append(frame, &session, 8);
	frame = append(frame, &name_length, 1);
	frame = append(frame, name, name_length);
	frame = append(frame, &args_count, 1);
	for (int i = 0; i < count; i++) {
		frame = append(frame, &args[i].direction, 1);
		frame = append(frame, &args[i].size, 4);
		if (args[i].direction != ARG_OUT && args[i].size)
			frame = append(frame, args[i].bytes, args[i].size);
	}
}

/* Copies the outputs into the caller's buffers. */
static int read_outputs(const uint8_t *at, const uint8_t *end, struct arg *args, int count)
{
	if (end - at < 1)
		return -1;
	int outputs = *at++;
	for (int i = 0; i < count && outputs; i++) {
		uint32_t size;
		if (args[i].direction == ARG_IN)
			continue;
		if (end - at < 4)
			return -1;
		memcpy(&size, at, 4);
		at += 4;
		if (end - at < (ptrdiff_t)size || size > args[i].size)
			return -1;
		if (size)
			memcpy(args[i].bytes, at, size);
		at += size;
		outputs--;
	}
	return outputs ? -1 : 0;
}

static int read_reply(int fd, struct arg *args, int count, int *code)
{
	uint32_t length;
	if (read_all(fd, (uint8_t *)&length, 4) || length < 5 || length > FRAME_MAX)
		return -1;
	uint8_t *body = malloc(length);
	if (!body)
		return -1;
	int failed = read_all(fd, body, length);
	if (!failed) {
		memcpy(code, body, 4);
		failed = read_outputs(body + 4, body + length, args, count);
	}
	free(body);
	return failed;
}

/* One attempt: returns 0 if code holds the answer. An idle connection may have died with an earlier daemon; then the caller tries again on
 * a new one. */
static int attempt(int fd, const uint8_t *frame, size_t size, struct arg *args, int count, int *code)
{
	if (!write_all(fd, frame, size) && !read_reply(fd, args, count, code)) {
		give_back(fd);
		return 0;
	}
	close(fd);
	return -1;
}

static int deliver(const uint8_t *frame, size_t size, struct arg *args, int count)
{
	int code, fd = take_idle();
	if (fd >= 0 && !attempt(fd, frame, size, args, count, &code))
		return code;
	fd = dial();
	if (fd < 0)
		return -fd;
	return attempt(fd, frame, size, args, count, &code) ? NVML_UNKNOWN : code;
}

int simgpu_exchange(uint64_t session, const char *name, struct arg *args, int count)
{
	size_t size = request_size(name, args, count);
	if (size > FRAME_MAX)
		return NVML_INVALID_ARGUMENT;
	uint8_t *frame = malloc(size);
	if (!frame)
		return NVML_UNKNOWN;
	write_request(frame, size, session, name, args, count);
	int code = deliver(frame, size, args, count);
	free(frame);
	return code;
}
