#include "forward.h"

#include "witness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	init = 1,
	max_status = 16 << 10,
};

// from_terminal returns whether the kernel sent the signal to the whole process group of the process.
static bool from_terminal(const struct signalfd_siginfo *received)
{
	static const int signals[] = {SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH, SIGHUP};
	if (received->ssi_code != SI_KERNEL)
		return false;
	// A terminal that hangs up signals only the leader of its session.
	if (received->ssi_signo == SIGHUP && getsid(0) == getpid())
		return false;
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		if (received->ssi_signo == (uint32_t)signals[i])
			return true;
	return false;
}

// signal_set reads a line of a process's status: a mask of signals in hexadecimal.
static uint64_t signal_set(const char *status, const char *key)
{
	const char *line = strstr(status, key);
	return line ? strtoull(line + strlen(key), NULL, 16) : 0;
}

// state reads which signals a process handles and which it blocks.
static int state(pid_t pid, uint64_t *handled, uint64_t *blocked)
{
	char path[64];
	size_t size;
	struct text name = text_of(path, sizeof path);
	text_add(&name, "/proc/");
	text_number(&name, pid);
	text_add(&name, "/status");
	char *status = read_file(AT_FDCWD, path, max_status, &size);
	if (!status)
		return -1;
	*handled = signal_set(status, "\nSigCgt:");
	*blocked = signal_set(status, "\nSigBlk:");
	free(status);
	return 0;
}

// takes returns whether the process handles a signal, or blocks it to wait for it. A shell blocks signals while it starts a program, which
// does not count. If that is unknown, it returns true.
static bool takes(pid_t pid, uint32_t number)
{
	const struct timespec pause = {0, 5000000};
	for (int sample = 0; sample < 40; sample++) {
		uint64_t handled, blocked;
		if (state(pid, &handled, &blocked) < 0 || handled >> (number - 1) & 1)
			return true;
		if (!(blocked >> (number - 1) & 1))
			return false;
		if (nanosleep(&pause, NULL) < 0 && errno != EINTR)
			return true;
	}
	return true;
}

void forward(struct run *run, const struct signalfd_siginfo *received)
{
	int number = (int)received->ssi_signo, sent;
	if (!run->process || from_terminal(received) || witnessed(run, received))
		return;
	// The kernel does not terminate a container's first process by a signal that it does not handle; without prism-run the process would be
	// that one.
	if (getpid() == init && number != SIGCONT && !takes(run->process, received->ssi_signo))
		return;
	if (received->ssi_code == SI_QUEUE)
		sent = sigqueue(run->process, number, (union sigval){.sival_ptr = (void *)(uintptr_t)received->ssi_ptr});
	else
		sent = kill(run->process, number);
	// It may run as another user; or its whole queue is full, in which case the plain signal is still delivered.
	if (sent < 0 && errno == EAGAIN)
		(void)kill(run->process, number);
}

void stop_alike(int status)
{
	int number = WSTOPSIG(status);
	if (getpid() != init && (number == SIGTSTP || number == SIGTTIN || number == SIGTTOU))
		(void)kill(getpid(), SIGSTOP);
}
