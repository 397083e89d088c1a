#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int strings_add(struct strings *list, const char *item)
{
	char **items = item ? realloc(list->items, (list->count + 2) * sizeof *items) : NULL;
	if (!items)
		return -1;
	list->items = items;
	items[list->count++] = (char *)item;
	items[list->count] = NULL;
	return 0;
}

struct text text_of(char *buffer, size_t size)
{
	buffer[0] = 0;
	return (struct text){buffer, size, 0};
}

void text_byte(struct text *to, char byte)
{
	if (to->length + 1 >= to->size)
		return;
	to->start[to->length++] = byte;
	to->start[to->length] = 0;
}

void text_add(struct text *to, const char *from)
{
	while (*from)
		text_byte(to, *from++);
}

void text_number(struct text *to, int64_t number)
{
	char digits[24];
	size_t i = sizeof digits - 1;
	uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;

	digits[i] = 0;
	do {
		digits[--i] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (number < 0)
		digits[--i] = '-';
	text_add(to, digits + i);
}

void text_hexadecimal(struct text *to, uint64_t number)
{
	for (int shift = 60; shift >= 0; shift -= 4)
		text_byte(to, "0123456789abcdef"[number >> shift & 15]);
}

char *text_joined(const char *one, const char *other)
{
	size_t size = strlen(one) + strlen(other) + 1;
	char *both = malloc(size);
	if (!both)
		return NULL;
	struct text to = text_of(both, size);
	text_add(&to, one);
	text_add(&to, other);
	return both;
}

const char *after(const char *text, const char *prefix)
{
	size_t size = strlen(prefix);
	return strncmp(text, prefix, size) ? NULL : text + size;
}

const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

int parse_number(const char *text, long least, long most, long *number)
{
	char *end;
	errno = 0;
	long read = strtol(text, &end, 10);
	if (errno || end == text || *end || read < least || read > most) {
		errno = EINVAL;
		return -1;
	}
	*number = read;
	return 0;
}

char *read_file(int directory, const char *path, size_t most, size_t *size)
{
	int file = openat(directory, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file < 0)
		return NULL;
	char *bytes = malloc(most + 1);
	size_t length = 0;
	ssize_t got = -1;
	// One byte more than allowed, because a file of exactly that size ends there.
	while (bytes && length <= most) {
		got = read(file, bytes + length, most + 1 - length);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		length += (size_t)got;
	}
	int failed = errno;
	if (close(file) < 0)
		failed = errno;
	if (!bytes || got != 0) {
		errno = bytes && got > 0 ? EFBIG : failed;
		free(bytes);
		return NULL;
	}
	bytes[length] = 0;
	*size = length;
	return bytes;
}

int write_all(int file, const char *bytes, size_t size)
{
	while (size > 0) {
		ssize_t written = write(file, bytes, size);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return -1;
		bytes += written;
		size -= (size_t)written;
	}
	return 0;
}

void drop(int *file)
{
	// No written data can be lost, and the descriptor is closed in any case.
	if (*file >= 0)
		(void)close(*file);
	*file = -1;
}

static int64_t clock_of(clockid_t clock, int64_t per_second)
{
	struct timespec now;
	if (clock_gettime(clock, &now) < 0)
		return 0;
	return now.tv_sec * per_second + now.tv_nsec / (1000000000 / per_second);
}

int64_t milliseconds(void)
{
	return clock_of(CLOCK_MONOTONIC, 1000);
}

int64_t wall_clock(void)
{
	return clock_of(CLOCK_REALTIME, 1000000000);
}
