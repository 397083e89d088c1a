#include "witness.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	wake_milliseconds = 10,	  // a witness without an answer by then may be stopped
	answer_milliseconds = 200, // the maximum time to wait for it
	first_queued = 32,	  // signals from this number on are queued individually
	settle_nanoseconds = 500000, // from the arrival of a signal at the witness to its arrival at this process
};

// question is about a signal; the answer contains the same sequence, and in number whether the signal was there.
struct question {
	uint32_t sequence, number;
};

// take removes a signal from those pending. A SIGCONT of prism-run only wakes the witness.
static bool take(uint32_t number, pid_t parent)
{
	const struct timespec none = {0};
	siginfo_t info;
	sigset_t one;
	if (sigemptyset(&one) < 0 || sigaddset(&one, (int)number) < 0)
		return false;
	while (sigtimedwait(&one, &info, &none) > 0)
		if (number != SIGCONT || info.si_pid != parent)
			return true;
	return false;
}

// become_witness keeps all signals pending until prism-run asks for one. It keeps none of the process's files and folders open.
static _Noreturn void become_witness(int asked, pid_t parent)
{
	struct question question;
	sigset_t all;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent || sigfillset(&all) < 0 || sigprocmask(SIG_SETMASK, &all, NULL) < 0)
		_exit(1);
	if (dup2(asked, STDIN_FILENO) < 0 || close_range(1, ~0U, 0) < 0 || chdir("/") < 0)
		_exit(1);
	while (recv(STDIN_FILENO, &question, sizeof question, 0) == sizeof question) {
		question.number = take(question.number, parent);
		if (send(STDIN_FILENO, &question, sizeof question, 0) != sizeof question)
			break;
	}
	_exit(0);
}

void witness_start(struct run *run)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	pid_t parent = getpid(), child = fork();
	if (child == 0)
		become_witness(ends[1], parent);
	bool failed = close(ends[1]) < 0 || child < 0;
	if (failed && close(ends[0]) == 0)
		return;
	run->witness = child;
	run->asks = ends[0];
}

void witness_end(struct run *run)
{
	// The process may have killed it, and reap may have collected it.
	if (run->witness > 0 && kill(run->witness, SIGKILL) == 0)
		while (waitpid(run->witness, NULL, 0) < 0 && errno == EINTR)
			continue;
	run->witness = 0;
	if (run->asks != closed && close(run->asks) < 0)
		run->asks = closed;
	run->asks = closed;
}

// ask lets the witness take a signal, and returns whether it was there.
static bool ask(struct run *run, uint32_t number)
{
	const struct question question = {++run->asked, number};
	struct question answer;
	if (send(run->asks, &question, sizeof question, MSG_DONTWAIT) != sizeof question)
		return false;
	int64_t asked = milliseconds();
	int wait = wake_milliseconds;
	for (int64_t left; (left = asked + answer_milliseconds - milliseconds()) > 0;) {
		struct pollfd file = {.fd = run->asks, .events = POLLIN};
		int ready = poll(&file, 1, left < wait ? (int)left : wait);
		if (ready < 0 && errno != EINTR)
			return false;
		// The whole group was stopped, and only this process was continued.
		if (ready == 0 && wait == wake_milliseconds) {
			(void)kill(run->witness, SIGCONT);
			wait = answer_milliseconds;
		}
		if (ready <= 0)
			continue;
		if (recv(run->asks, &answer, sizeof answer, MSG_DONTWAIT) != sizeof answer)
			return false;
		// A late answer belongs to an earlier question.
		if (answer.sequence == question.sequence)
			return answer.number != 0;
	}
	return false;
}

static bool is_pending(uint32_t number)
{
	sigset_t pending;
	return sigpending(&pending) == 0 && sigismember(&pending, (int)number) == 1;
}

// comes_again returns whether a signal is pending, or is about to arrive through the group: the witness has received it, and this process
// is about to.
static bool comes_again(uint32_t number)
{
	const struct timespec settle = {0, settle_nanoseconds};
	if (is_pending(number))
		return true;
	(void)nanosleep(&settle, NULL);
	return is_pending(number);
}

// The kernel delivers a signal first to the newest member of a group, so the witness has received it when this process does. A signal that
// arrives twice before the witness is asked is pending there only once; the second one then arrives at this process soon after the first is
// answered.
bool witnessed(struct run *run, const struct signalfd_siginfo *received)
{
	uint32_t number = received->ssi_signo;
	// Only kill can signal a group.
	if (received->ssi_code != SI_USER || run->asks == closed || !run->witness)
		return false;
	uint64_t bit = (uint64_t)1 << (number - 1);
	bool again = run->repeated & bit && run->repeated_by == received->ssi_pid;
	bool there = ask(run, number) || again;
	run->repeated &= ~bit;
	if (there && number < first_queued && comes_again(number)) {
		run->repeated |= bit;
		run->repeated_by = received->ssi_pid;
	}
	return there;
}
