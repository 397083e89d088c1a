#include "supervise.h"

#include "forward.h"
#include "log.h"
#include "note.h"
#include "process.h"
#include "record.h"
#include "session.h"
#include "startlock.h"
#include "tool.h"
#include "wait.h"
#include "witness.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	max_starts = 5,
	pause_nanoseconds = 50000000,
	pending_milliseconds = 50,
};

void reap(struct run *run)
{
	int status;
	for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
		if (WIFSTOPPED(status)) {
			if (pid == run->process)
				stop_alike(status);
			continue;
		}
		if (pid == run->process) {
			run->process = 0;
			run->process_ended = true;
			run->process_status = status;
		}
		if (pid == run->witness)
			run->witness = 0;
		if (pid == run->tool) {
			run->tool = 0;
			run->tool_status = status;
		}
		if (pid == run->command) {
			run->command = 0;
			run->command_status = status;
		}
	}
}

// listen_to makes the descriptor of signals report these. Before the process runs, its signals stay pending.
static int listen_to(struct run *run, bool all)
{
	sigset_t set;
	if ((all ? sigfillset(&set) : sigemptyset(&set)) < 0 || sigaddset(&set, SIGCHLD) < 0)
		return -1;
	int file = signalfd(run->signals, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (file < 0)
		return -1;
	run->signals = file;
	return 0;
}

int64_t earlier(int64_t one, int64_t other)
{
	return one < other ? one : other;
}

const char *not_to_wait(const struct run *run)
{
	sigset_t pending;
	if (run->process_ended)
		return "the process was killed before it was executed";
	// The time that the process has to terminate must not be spent on nsys.
	if (sigpending(&pending) == 0 && sigismember(&pending, SIGTERM) == 1)
		return "the process received SIGTERM before nsys started";
	return NULL;
}

// await_ready waits until the stand-in has sent its variables, nsys exited or the time is over.
static const char *await_ready(struct run *run)
{
	for (;;) {
		struct pollfd waits[] = {
			{.fd = run->up, .events = POLLIN}, {.fd = run->log.from, .events = POLLIN}, {.fd = run->signals, .events = POLLIN},
		};
		int64_t left = run->start_by - milliseconds();
		if (left <= 0)
			return "nsys did not start its program in time";
		// A signal that stays pending does not wake this process.
		if (poll(waits, sizeof waits / sizeof *waits, (int)earlier(left, pending_milliseconds)) < 0 && errno != EINTR)
			return "waiting for nsys failed";
		struct signalfd_siginfo received;
		while (waits[2].revents && read(run->signals, &received, sizeof received) == sizeof received)
			continue;
		reap(run);
		log_copy(run, &run->log);
		int read = variables_read(run);
		if (read > 0)
			return NULL;
		if (read < 0)
			return "nsys started its program with unreadable environment variables";
		const char *reason = not_to_wait(run);
		if (reason)
			return reason;
		if (!run->tool)
			return "nsys exited before it started its program";
	}
}

// start_tool starts nsys, and returns why it did not start its program. Its processes name their files in /dev/shm by their ids, and the
// containers of a pod share /dev/shm and use the same ids: if another container uses the same id, nsys exits, and the processes of its next
// start have other ids.
static const char *start_tool(struct run *run)
{
	const char *failed = "starting nsys failed";
	for (int starts = 1; tool_start(run) == 0; starts++) {
		failed = await_ready(run);
		if (!failed)
			return NULL;
		bool exited = !run->tool;
		tool_kill(run);
		log_copy(run, &run->log);
		if (!exited || not_to_wait(run) || starts == max_starts)
			break;
		log_end(&run->log);
		variables_forget(run);
		run->log.said_size = 0;
	}
	return failed;
}

// start starts nsys when no other process of the pod does, or half of the time is over.
static const char *start(struct run *run)
{
	int lock;
	run->start_by = milliseconds() + run->plan.ready * second;
	bool locked = start_lock(run, &lock);
	const char *failed = not_to_wait(run);
	// Another program may hold it for its whole run, and nsys rarely fails without it.
	if (!failed && !locked)
		note_add(run, "message", "nsys was started while other processes of the pod held the lock of /dev/shm");
	if (!failed)
		failed = start_tool(run);
	drop(&lock);
	return failed;
}

// fail_closed exits this process in place of the process, or in the same way if the process was killed.
static _Noreturn void fail_closed(struct run *run)
{
	witness_end(run);
	if (run->process_ended)
		exit_as(run->process_status);
	_exit(125);
}

// begin starts nsys for the process, then lets the process run.
static int begin(struct run *run)
{
	if (listen_to(run, false) < 0 || process_start(run) < 0)
		return -1;
	// After the process: a signal to the group in between is then received twice, and in the other order it would be lost.
	witness_start(run);
	const char *failed = start(run);
	run->ready = !failed;
	if (failed) {
		adopt_none(run);
		pipes_remove(run);
		session_failed(run);
		note_tool_failure(run, &run->log, "FellBackUnprofiled", failed);
		if (run->plan.fail_closed)
			fail_closed(run);
		run->variables = (struct strings){0};
	}
	// If this fails, the process was killed.
	if (process_go(run) < 0)
		note_add(run, "message", "the process exited before it was executed");
	drop(&run->up);
	return 0;
}

void watch_plan(struct run *run)
{
	run->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (run->watch >= 0 && inotify_add_watch(run->watch, PLAN_FOLDER, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR) < 0)
		drop(&run->watch);
}

int64_t term_by(const struct run *run)
{
	return run->term ? run->term + run->plan.term * second : never;
}

int64_t report_by(const struct run *run)
{
	return earlier(run->ending + run->plan.report * second, term_by(run));
}

int64_t stop_by(const struct run *run)
{
	return run->term ? run->term + run->plan.stop * second : never;
}

// timeout returns the maximum time to wait for an event, in milliseconds.
static int timeout(int64_t due)
{
	if (due == never)
		return -1;
	int64_t wait = due - milliseconds();
	return wait < 0 ? 0 : (int)earlier(wait, INT32_MAX);
}

static void take_signals(struct run *run)
{
	struct signalfd_siginfo received;
	while (read(run->signals, &received, sizeof received) == sizeof received) {
		if (received.ssi_signo == SIGCHLD && received.ssi_code > 0)
			continue;
		if (received.ssi_signo == SIGTERM && !run->term)
			run->term = milliseconds();
		forward(run, &received);
	}
	reap(run);
}

// wait_for_event waits for an event, or until something is due, and processes all events.
static void wait_for_event(struct run *run, int64_t due)
{
	struct pollfd waits[] = {
		{.fd = run->signals, .events = POLLIN}, {.fd = run->log.from, .events = POLLIN}, {.fd = run->command_log.from, .events = POLLIN},
		{.fd = run->watch, .events = POLLIN},
	};
	char event[4096];
	// If that fails, because of a lack of memory or because the process lowered a limit for this one, the process still continues.
	if (poll(waits, sizeof waits / sizeof *waits, timeout(due)) < 0 && errno != EINTR)
		nanosleep(&(struct timespec){.tv_nsec = pause_nanoseconds}, NULL);
	if (waits[3].revents && read(run->watch, event, sizeof event) < 0 && errno != EAGAIN)
		drop(&run->watch);
	take_signals(run);
	log_copy(run, &run->log);
	log_copy(run, &run->command_log);
}

// supervisor is how a process is recorded: begin is called once nsys runs, due returns when advance must be called without an event.
static const struct supervisor {
	void (*begin)(struct run *run);
	void (*advance)(struct run *run);
	int64_t (*due)(const struct run *run);
} from_start = {record_begin, record_advance, record_due}, by_hand = {wait_begin, wait_advance, wait_due};

int supervise(struct run *run)
{
	const struct supervisor *supervisor = run->plan.manual ? &by_hand : &from_start;
	if (begin(run) < 0)
		return -1;
	run->done = !run->ready;
	if (close_inherited(run) < 0 || chdir("/") < 0)
		note_add(run, "message", "file descriptors of the process stay open");
	if (run->ready)
		supervisor->begin(run);
	if (listen_to(run, true) < 0)
		note_add(run, "message", "signals are not forwarded");
	for (;;) {
		note_exit(run);
		if (!run->done)
			supervisor->advance(run);
		if (run->process_ended && run->done)
			break;
		wait_for_event(run, run->done ? never : supervisor->due(run));
	}
	witness_end(run);
	exit_as(run->process_status);
}
