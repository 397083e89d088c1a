#include "log.h"

#include "range.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
	max_log = 64 << 10,
};

int log_open(struct log *log, int folder)
{
	*log = (struct log){.from = closed};
	log->file = openat(folder, "nsys.log", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return log->file < 0 ? -1 : 0;
}

void log_end(struct log *log)
{
	drop(&log->from);
}

void log_close(struct log *log)
{
	log_end(log);
	drop(&log->file);
}

// said_keep keeps the end of the output of nsys; line ends and white space become one space.
static void said_keep(struct log *log, const char *output, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		bool blank = (unsigned char)output[i] <= ' ';
		if (blank && (!log->said_size || log->said[log->said_size - 1] == ' '))
			continue;
		if (log->said_size == sizeof log->said)
			memmove(log->said, log->said + 1, --log->said_size);
		log->said[log->said_size++] = blank ? ' ' : output[i];
	}
}

// copy returns false at the end of the output.
static bool copy(struct run *run, struct log *log)
{
	char buffer[4096];
	for (;;) {
		ssize_t got = read(log->from, buffer, sizeof buffer);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN; // reading a terminal without a writer fails with another error
		if (got == 0)
			return false;
		range_seen(run, buffer, (size_t)got);
		said_keep(log, buffer, (size_t)got);
		size_t keep = (size_t)got;
		if (keep > max_log - log->size)
			keep = max_log - log->size;
		log->size += keep;
		if (keep && write_all(log->file, buffer, keep) < 0)
			log->size = max_log;
	}
}

void log_copy(struct run *run, struct log *log)
{
	if (log->from != closed && !copy(run, log))
		log_end(log);
}
