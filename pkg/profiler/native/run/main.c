// prism-run EXECUTABLE ARGUMENT0...: runs a process together with Nsight Systems, under the process's own id. The library executes it in
// place of a matching process. If anything fails, the process runs once, unless its claim requires that it fails.
#include "ancestry.h"
#include "note.h"
#include "process.h"
#include "sanitizer.h"
#include "session.h"
#include "supervise.h"
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static void complain(const char *message, int error)
{
	char buffer[512];
	struct text text = text_of(buffer, sizeof buffer);
	text_add(&text, "prism-run: ");
	text_add(&text, message);
	if (error) {
		text_add(&text, ": ");
		text_add(&text, strerror(error));
	}
	text_byte(&text, '\n');
	if (write_all(STDERR_FILENO, text.start, text.length) < 0)
		_exit(126);
}

static _Noreturn void execute_or_complain(struct run *run)
{
	run_original(run, false);
	complain(run->executable, errno);
	_exit(126);
}

// unwanted runs the process without the profiler because of the claim's limits, which is not a failure.
static _Noreturn void unwanted(struct run *run, const char *reason, const char *message)
{
	session_failed(run);
	note_failure(run, reason, message, 0);
	execute_or_complain(run);
}

// without runs the process without the profiler, or fails if the claim requires that.
static _Noreturn void without(struct run *run, const char *reason, const char *message, int error)
{
	session_failed(run);
	note_failure(run, reason, message, error);
	if (run->plan.fail_closed) {
		complain(message, error);
		_exit(125);
	}
	execute_or_complain(run);
}

// slot_take locks a slot for a profiled process: 1 if one was free, 0 if all are taken.
static int slot_take(struct run *run)
{
	for (long i = 0; i < run->plan.max_sessions; i++) {
		char path[128];
		struct text name = text_of(path, sizeof path);
		text_add(&name, CONTAINER_FOLDER "/slot-");
		text_number(&name, i);
		run->slot = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (run->slot < 0)
			return -1;
		if (flock(run->slot, LOCK_EX | LOCK_NB) == 0)
			return 1;
		if (errno != EWOULDBLOCK)
			return -1;
		if (close(run->slot) < 0)
			return -1;
		run->slot = closed;
	}
	return 0;
}

// children_elsewhere returns whether the process has requested a new pid namespace for its children. The profiler's processes would be the
// first in it.
static bool children_elsewhere(void)
{
	struct stat own, theirs;
	return stat("/proc/self/ns/pid", &own) == 0 &&
	       (stat("/proc/self/ns/pid_for_children", &theirs) < 0 || own.st_dev != theirs.st_dev || own.st_ino != theirs.st_ino);
}

static _Noreturn void profile(struct run *run)
{
	int plan_error = plan_read(&run->plan) < 0 ? errno : 0;
	context_read(&run->context);
	if (below_supervisor() || children_elsewhere() || (!run->plan.exec_sessions && in_exec_session((pid_t)run->context.init)))
		execute_or_complain(run);
	if (take_over(run) < 0)
		without(run, "FellBackUnprofiled", "taking over the signals of the process", errno);
	int slot = slot_take(run);
	if (session_open(run) < 0)
		without(run, "FellBackUnprofiled", "creating a session in " RESULTS, errno);
	if (plan_error)
		without(run, "FellBackUnprofiled", "reading " PLAN_FILE, plan_error);
	if (slot == 0)
		unwanted(run, "SlotsTaken", "match.maxSessions processes of the container are profiled already");
	if (slot < 0)
		without(run, "FellBackUnprofiled", "locking a slot in " CONTAINER_FOLDER, errno);
	if (!run->plan.manual && stop_wanted())
		unwanted(run, "Stopped", "recording has been stopped for this claim");
	if (has_sanitizer(run->executable))
		without(run, "SanitizerNotSupported", "the program is built with a sanitizer or preloads one, which nsys does not support", 0);
	if (access(run->plan.tool, X_OK) < 0)
		without(run, "ToolNotInstalled", run->plan.tool, errno);
	if (session_prepare(run) < 0)
		without(run, "FellBackUnprofiled", "preparing the folder of the report", errno);
	if (supervise(run) < 0)
		without(run, "FellBackUnprofiled", "starting the profiler beside the process", errno);
	_exit(126); // not reached
}

int main(int argc, char **argv)
{
	struct run run = {
		.session_note = {.file = closed}, .recording = {.folder = closed, .note = {.file = closed}}, .log = {.file = closed, .from = closed},
		.command_log = {.file = closed, .from = closed}, .folder = closed, .slot = closed, .up = closed, .down = closed,
		.signals = closed, .watch = closed, .go = closed, .asks = closed,
	};
	if (argc == 3 && !strcmp(argv[1], "--stand-in"))
		return stand_in(argv[2]);
	if (argc < 3 || argv[1][0] != '/') {
		complain("usage: prism-run EXECUTABLE ARGUMENT0 [ARGUMENT...]", 0);
		return 2;
	}
	run.executable = argv[1];
	run.arguments = argv + 2;
	run.started = wall_clock();
	profile(&run);
}
