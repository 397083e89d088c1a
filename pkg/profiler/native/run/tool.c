#include "tool.h"

#include "log.h"
#include "note.h"
#include "process.h"
#include "range.h"
#include "session.h"
#include "supervise.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// The variables that mark the processes of a session, and of a command for a recording.
#define SESSION "PRISM_SESSION="
#define RECORDING "PRISM_RECORDING="

enum {
	max_path = 512,
	max_environment = 128 << 10,
	max_rounds = 200,
	pause_nanoseconds = 5000000,
};

// raise_limits lets nsys use the process's maximum: a limit that the process set for itself does not apply to another program.
static int raise_limits(void)
{
	static const int limits[] = {RLIMIT_FSIZE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU, RLIMIT_NOFILE};
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		struct rlimit limit;
		if (getrlimit(limits[i], &limit) < 0)
			return -1;
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(limits[i], &limit) < 0)
			return -1;
	}
	return 0;
}

// plain_signals makes nsys start with no signal blocked or ignored.
static int plain_signals(void)
{
	sigset_t none;
	for (int number = 1; number < NSIG; number++)
		if (number != SIGKILL && number != SIGSTOP && signal(number, SIG_DFL) == SIG_ERR && errno != EINVAL)
			return -1;
	return sigemptyset(&none) < 0 ? -1 : sigprocmask(SIG_SETMASK, &none, NULL);
}

// path_variable returns "NAME=<path in the session's folder>".
static char *path_variable(const struct run *run, const char *name, const char *file)
{
	char *variable = malloc(max_path);
	if (!variable)
		return NULL;
	struct text to = text_of(variable, max_path);
	text_add(&to, name);
	session_path(run, file, &to);
	return variable;
}

// arguments_of adds the arguments of nsys beside the process.
static int arguments_of(const struct run *run, struct strings *to)
{
	int failed = strings_add(to, run->plan.manual ? "launch" : "profile");
	for (size_t i = 0; i < run->plan.switches.count; i++)
		failed |= strings_add(to, run->plan.switches.items[i]);
	char *pipes = malloc(max_path);
	if (!pipes)
		return -1;
	struct text path = text_of(pipes, max_path);
	pipes_path(run, "", &path);
	if (run->plan.manual)
		failed |= strings_add(to, text_joined("--session-new=", run->session));
	else
		failed |= strings_add(to, "-o") | strings_add(to, run->recording.output);
	return failed | strings_add(to, PRISM_RUN) | strings_add(to, "--stand-in") | strings_add(to, pipes);
}

static int environment_of(const struct run *run, struct strings *to)
{
	int failed = strings_add(to, text_joined(SESSION, run->session)) | strings_add(to, "PRISM_PROFILED=1") |
		     strings_add(to, "PATH=/usr/bin:/bin") | strings_add(to, path_variable(run, "TMPDIR=", "tmp")) |
		     strings_add(to, path_variable(run, "NSYS_TMPDIR=", "tmp")) | strings_add(to, path_variable(run, "HOME=", "tmp"));
	if (run->plan.manual && *run->recording.name)
		failed |= strings_add(to, text_joined(RECORDING, run->recording.name));
	for (size_t i = 0; i < run->plan.environment.count; i++)
		failed |= strings_add(to, run->plan.environment.items[i]);
	return failed;
}

// use_files opens only an empty input and the log as output for nsys.
static int use_files(const struct run *run, int output)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null < 0)
		null = openat(run->folder, "tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	// Both may have the number of a descriptor that is replaced.
	null = fcntl(null, F_DUPFD_CLOEXEC, 3);
	output = fcntl(output, F_DUPFD_CLOEXEC, 3);
	if (null < 0 || output < 0 || fchdir(run->folder) < 0)
		return -1;
	if (dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
		return -1;
	return close_range(3, ~0U, 0);
}

static _Noreturn void become_tool(const struct run *run, arguments *of, int output)
{
	struct strings command = {0}, environment = {0};
	if (strings_add(&command, run->plan.tool) == 0 && of(run, &command) == 0 && environment_of(run, &environment) == 0 && setsid() > 0 &&
	    use_files(run, output) == 0 && raise_limits() == 0 && plain_signals() == 0)
		execve(command.items[0], command.items, environment.items);
	const char *reason = strerror(errno);
	if (write_all(STDERR_FILENO, reason, strlen(reason)) < 0)
		_exit(126);
	_exit(127);
}

// spawn starts a command of nsys, and returns its process.
static pid_t spawn(const struct run *run, arguments *of, struct log *log)
{
	int ends[2];
	if ((!range_wanted(run) || range_output(ends) < 0) && pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return -1;
	log->from = ends[0];
	// nsys does not expect a pipe that is temporarily full.
	pid_t child = fcntl(ends[1], F_SETFL, 0) < 0 ? -1 : fork();
	if (child == 0)
		become_tool(run, of, ends[1]);
	int failed = errno;
	if (close(ends[1]) < 0 || child < 0) {
		errno = failed;
		return -1;
	}
	return child;
}

int tool_start(struct run *run)
{
	pid_t child = spawn(run, arguments_of, &run->log);
	if (child < 0)
		return -1;
	run->tool = child;
	return 0;
}

int command_start(struct run *run, arguments *of)
{
	run->command_log.said_size = 0;
	pid_t child = spawn(run, of, &run->command_log);
	if (child < 0)
		return -1;
	run->command = child;
	return 0;
}

void tool_finish(struct run *run)
{
	if (run->down != closed && close(run->down) < 0)
		note_add(run, "message", "closing the pipe to the stand-in failed");
	run->down = closed;
}

// process_open returns a descriptor of a process, which does not refer to a later process with its id; closed if the kernel or a sandbox
// does not support it.
static int process_open(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int process_kill(int process, pid_t pid)
{
	if (process < 0)
		return kill(pid, SIGKILL);
	return (int)syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
}

// marked returns whether the environment of a process contains a mark: a variable and its value.
static bool marked(const char *pid, const char *mark)
{
	char path[max_path];
	size_t size, length = strlen(mark) + 1;
	struct text name = text_of(path, sizeof path);
	text_add(&name, "/proc/");
	text_add(&name, pid);
	text_add(&name, "/environ");
	// The environment of nsys is small; other users' environments are not readable.
	char *environment = read_file(AT_FDCWD, path, max_environment, &size);
	if (!environment)
		return false;
	bool found = false;
	for (const char *variable = environment; !found && variable + length <= environment + size; variable += strlen(variable) + 1)
		found = !memcmp(variable, mark, length);
	free(environment);
	return found;
}

// kill_marked kills the running processes with a mark, and returns their number.
static int kill_marked(const struct run *run, const char *mark)
{
	DIR *processes = opendir("/proc");
	int count = 0;
	if (!processes)
		return 0;
	for (struct dirent *entry; (entry = readdir(processes));) {
		long pid;
		if (parse_number(entry->d_name, 2, INT32_MAX, &pid) < 0 || pid == getpid() || pid == run->process)
			continue;
		// Opened before the check: the checked process is the one that is killed.
		int process = process_open((pid_t)pid);
		if (marked(entry->d_name, mark))
			count += process_kill(process, (pid_t)pid) == 0;
		if (process >= 0 && close(process) < 0)
			break;
	}
	return closedir(processes) < 0 ? 0 : count;
}

// kill_all kills a child, and every process with the mark.
static void kill_all(struct run *run, const pid_t *child, const char *variable, const char *value)
{
	const struct timespec pause = {0, pause_nanoseconds};
	char mark[max_path];
	struct text text = text_of(mark, sizeof mark);
	text_add(&text, variable);
	text_add(&text, value);
	// nsys starts processes in sessions of their own, and may be about to start another.
	for (int round = 0; round < max_rounds; round++) {
		bool ended = !*child;
		if (!ended && kill(*child, SIGKILL) < 0 && errno != ESRCH)
			return;
		if (kill_marked(run, mark) == 0 && ended)
			return;
		if (nanosleep(&pause, NULL) < 0 && errno != EINTR)
			return;
		reap(run);
	}
}

void tool_kill(struct run *run)
{
	kill_all(run, &run->tool, SESSION, run->session);
}

void command_kill(struct run *run)
{
	kill_all(run, &run->command, RECORDING, run->recording.name);
}

void tool_over(struct run *run)
{
	tool_finish(run);
	tool_kill(run);
	log_copy(run, &run->log);
	adopt_none(run);
	log_end(&run->log);
	run->done = true;
	pipes_remove(run);
}
