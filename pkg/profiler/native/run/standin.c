#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static int send_environment(int up)
{
	for (char **variable = environ; *variable; variable++)
		if (write_all(up, *variable, strlen(*variable) + 1) < 0)
			return -1;
	return write_all(up, "", 1);
}

// await_end returns when every other end of the pipe is closed.
static int await_end(int down)
{
	for (;;) {
		char byte;
		struct pollfd wait = {.fd = down, .events = POLLIN};
		if (poll(&wait, 1, -1) < 0 && errno != EINTR)
			return -1;
		ssize_t got = read(down, &byte, 1);
		if (got == 0)
			return 0;
		if (got < 0 && errno != EINTR && errno != EAGAIN)
			return -1;
	}
}

int stand_in(const char *folder)
{
	int in = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (in < 0)
		return 1;
	// Do not wait for the other end: prism-run may have been killed.
	int down = openat(in, "down", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int up = openat(in, "up", O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (down < 0 || up < 0 || fcntl(up, F_SETFL, 0) < 0 || send_environment(up) < 0 || close(up) < 0)
		return 1;
	return await_end(down) < 0;
}

// own_business returns whether a variable belongs to nsys itself and its start, and not to the process.
static bool own_business(const struct run *run, const char *variable)
{
	static const char *const names[] = {"PATH=", "TMPDIR=", "NSYS_TMPDIR=", "HOME=", "PRISM_", "PWD=", "OLDPWD=", "SHLVL=", "_="};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (after(variable, names[i]))
			return true;
	for (size_t i = 0; i < run->plan.environment.count; i++)
		if (!strcmp(variable, run->plan.environment.items[i]))
			return true;
	return !strchr(variable, '=');
}

// The data that was read so far.
static char buffer[MAX_VARIABLES];
static size_t length;

void variables_forget(struct run *run)
{
	while (read(run->up, buffer, sizeof buffer) > 0)
		continue;
	length = 0;
}

int variables_read(struct run *run)
{
	for (;;) {
		ssize_t got = read(run->up, buffer + length, sizeof buffer - length);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			return 0;
		if (got <= 0)
			return -1;
		length += (size_t)got;
		if (length > 1 && !buffer[length - 1] && !buffer[length - 2])
			break;
	}
	for (const char *variable = buffer; *variable; variable += strlen(variable) + 1)
		if (!own_business(run, variable) && strings_add(&run->variables, variable) < 0)
			return -1;
	return 1;
}
