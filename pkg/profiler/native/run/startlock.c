#include "startlock.h"

#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

// The agents of nsys share memory in this folder by a name of their version, and two of them that create it at the same time deadlock
// (observed with 2022.4.2). The folder belongs to the pod, or to the node with hostIPC, like that memory.
#define FOLDER "/dev/shm"

bool lock_try(int *lock)
{
	if (*lock == closed)
		*lock = open(FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *lock < 0 || flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool start_lock(struct run *run, int *lock)
{
	int64_t now = milliseconds(), deadline = now + (run->start_by - now) / 2;
	*lock = closed;
	while (!lock_try(lock)) {
		struct pollfd wait = {.fd = run->signals, .events = POLLIN};
		struct signalfd_siginfo received;
		if (poll(&wait, 1, lock_pause) > 0)
			while (read(run->signals, &received, sizeof received) == sizeof received)
				continue;
		reap(run);
		if (not_to_wait(run) || milliseconds() >= deadline)
			return false;
	}
	return true;
}
