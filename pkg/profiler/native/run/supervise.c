#include "supervise.h"

#include "forward.h"
#include "process.h"
#include "range.h"
#include "session.h"
#include "startlock.h"
#include "tool.h"
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
	second = 1000, // milliseconds
	nanoseconds = 1000000,
	never = -1,
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
	}
}

// code returns an exit status, or the negative number of a signal.
static int code(int status)
{
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// drop closes a descriptor; no written data can be lost.
static void drop(int *file)
{
	if (*file != closed && close(*file) < 0)
		*file = closed;
	*file = closed;
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

// copy_output prevents that the pipe of nsys becomes full.
static void copy_output(struct run *run)
{
	if (run->tool_output != closed && !log_copy(run))
		drop(&run->tool_output);
}

static int64_t earlier(int64_t one, int64_t other)
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
			{.fd = run->up, .events = POLLIN}, {.fd = run->tool_output, .events = POLLIN}, {.fd = run->signals, .events = POLLIN},
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
		copy_output(run);
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
		copy_output(run);
		if (!exited || not_to_wait(run) || starts == max_starts)
			break;
		drop(&run->tool_output);
		variables_forget(run);
		run->said_size = 0;
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
		note_tool_failure(run, "FellBackUnprofiled", failed);
		if (run->plan.fail_closed)
			fail_closed(run);
		run->variables = (struct strings){0};
	}
	// If this fails, the process was killed.
	if (process_go(run) < 0)
		note_add(run, "message", "the process exited before it was executed");
	if (run->ready) {
		note_number(run, "ready", wall_clock() - run->started);
		note_add(run, "state", "Recording");
		range_await(run);
	}
	drop(&run->up);
	return 0;
}

// watch_stop wakes this process at a change in the plan's folder.
static void watch_stop(struct run *run)
{
	run->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (run->watch >= 0 && inotify_add_watch(run->watch, PLAN_FOLDER, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR) < 0)
		drop(&run->watch);
}

// recording is the state of the loop; times are in milliseconds.
struct recording {
	bool running; // the stand-in must not exit yet
	bool done; // nsys and all of its processes exited
	bool noted; // the exit of the process is noted
	int64_t term, ending; // 0: not yet
};

// deadline returns the time at which nsys is killed.
static int64_t deadline(const struct run *run, const struct recording *r)
{
	int64_t end = r->ending + run->plan.report * second;
	return r->term ? earlier(end, r->term + run->plan.term * second) : end;
}

// timeout returns the maximum time to wait for an event.
static int timeout(const struct run *run, const struct recording *r)
{
	int64_t wait = INT32_MAX, now = milliseconds();
	if (r->running && r->term)
		wait = earlier(wait, r->term + run->plan.stop * second - now);
	if (r->running && run->watch == closed)
		wait = earlier(wait, second);
	if (!r->running && !r->done)
		wait = earlier(wait, deadline(run, r) - now);
	if (wait == INT32_MAX)
		return never;
	return wait < 0 ? 0 : (int)wait;
}

// conclude notes the outcome of the report once nsys exited.
static void conclude(struct run *run, struct recording *r, const char *lost)
{
	tool_finish(run);
	tool_kill(run);
	copy_output(run);
	adopt_none(run);
	drop(&run->tool_output);
	r->running = false;
	r->done = true;
	pipes_remove(run);
	note_number(run, "toolExit", code(run->tool_status));
	if (run->range_awaited)
		note_failure(run, "RangeNotReached", "the process did not start the range", 0);
	else if (lost || !report_note(run))
		note_tool_failure(run, "ReportLost", lost ? lost : "nsys exited without a report");
	else
		note_add(run, "state", "Finished");
}

// advance performs the actions that are due.
static void advance(struct run *run, struct recording *r)
{
	int64_t now = milliseconds();
	if (run->process_ended && !r->noted) {
		r->noted = true;
		note_number(run, "exited", wall_clock());
		note_number(run, "exit", code(run->process_status));
	}
	if (r->done)
		return;
	if (!run->tool) {
		conclude(run, r, NULL);
		return;
	}
	if (r->running && (run->process_ended || run->range_reported || stop_wanted() || (r->term && now >= r->term + run->plan.stop * second))) {
		r->running = false;
		r->ending = now;
		note_add(run, "state", "Ending");
		tool_finish(run);
	}
	if (!r->running && now >= deadline(run, r))
		conclude(run, r, "nsys did not write the report in time");
}

static void take_signals(struct run *run, struct recording *r)
{
	struct signalfd_siginfo received;
	while (read(run->signals, &received, sizeof received) == sizeof received) {
		if (received.ssi_signo == SIGCHLD && received.ssi_code > 0)
			continue;
		if (received.ssi_signo == SIGTERM && !r->term)
			r->term = milliseconds();
		forward(run, &received);
	}
	reap(run);
}

int supervise(struct run *run)
{
	struct recording r = {0};
	if (begin(run) < 0)
		return -1;
	r.running = run->ready;
	r.done = !run->ready;
	if (close_inherited(run) < 0 || chdir("/") < 0)
		note_add(run, "message", "file descriptors of the process stay open");
	if (run->ready)
		watch_stop(run);
	if (listen_to(run, true) < 0)
		note_add(run, "message", "signals are not forwarded");
	while (advance(run, &r), !(run->process_ended && r.done)) {
		struct pollfd waits[] = {
			{.fd = run->signals, .events = POLLIN}, {.fd = run->tool_output, .events = POLLIN}, {.fd = run->watch, .events = POLLIN},
		};
		char event[4096];
		// If that fails, because of a lack of memory or because the process lowered a limit for this one, the process still continues.
		if (poll(waits, sizeof waits / sizeof *waits, timeout(run, &r)) < 0 && errno != EINTR)
			nanosleep(&(struct timespec){.tv_nsec = pause_nanoseconds}, NULL);
		if (waits[2].revents && read(run->watch, event, sizeof event) < 0 && errno != EAGAIN)
			drop(&run->watch);
		take_signals(run, &r);
		copy_output(run);
	}
	witness_end(run);
	exit_as(run->process_status);
}
