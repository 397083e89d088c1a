#include "process.h"
#include "note.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int take_over(struct run *run)
{
	struct sigaction children;
	sigset_t all;
	if (sigprocmask(SIG_BLOCK, NULL, &run->mask) < 0 || sigaction(SIGCHLD, NULL, &children) < 0 ||
	    prctl(PR_GET_CHILD_SUBREAPER, &run->subreaper, 0, 0, 0) < 0)
		return -1;
	run->children_ignored = children.sa_handler == SIG_IGN;
	run->umask = umask(077);
	run->taken_over = true;
	if (sigfillset(&all) < 0 || sigprocmask(SIG_SETMASK, &all, NULL) < 0)
		return -1;
	// A process that ignores SIGCHLD never learns the exit status of its children.
	if (run->children_ignored && signal(SIGCHLD, SIG_DFL) == SIG_ERR)
		return -1;
	return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

int give_back(const struct run *run)
{
	if (!run->taken_over)
		return 0;
	umask(run->umask);
	if (run->children_ignored && signal(SIGCHLD, SIG_IGN) == SIG_ERR)
		return -1;
	if (prctl(PR_SET_CHILD_SUBREAPER, run->subreaper, 0, 0, 0) < 0)
		return -1;
	return sigprocmask(SIG_SETMASK, &run->mask, NULL);
}

void adopt_none(const struct run *run)
{
	(void)prctl(PR_SET_CHILD_SUBREAPER, run->subreaper, 0, 0, 0);
}

static const char *value_of(const char *variable, const char *name)
{
	const char *rest = after(variable, name);
	return rest && *rest == '=' ? rest + 1 : NULL;
}

// same_name returns whether two variables have the same name.
static bool same_name(const char *one, const char *other)
{
	size_t size = strcspn(one, "=");
	return !strncmp(one, other, size) && other[size] == '=';
}

static bool replaced(const struct strings *by, const char *variable)
{
	for (size_t i = 0; i < by->count; i++)
		if (same_name(by->items[i], variable))
			return true;
	return false;
}

// joined returns nsys's list of libraries to load, followed by the process's own.
static const char *joined(const char *variable, char **own)
{
	if (!value_of(variable, "LD_PRELOAD"))
		return variable;
	for (; *own; own++) {
		const char *libraries = value_of(*own, "LD_PRELOAD");
		if (!libraries || !*libraries)
			continue;
		size_t size = strlen(variable) + strlen(libraries) + 2;
		char *both = malloc(size);
		if (!both)
			return NULL;
		struct text to = text_of(both, size);
		text_add(&to, variable);
		text_byte(&to, ':');
		text_add(&to, libraries);
		return both;
	}
	return variable;
}

// variables returns the process's environment with the mark, and with more variables before its own of the same names. It returns null
// without memory.
static char **variables(const struct strings *more, const char *mark)
{
	struct strings all = {0};
	for (size_t i = 0; i < more->count; i++) {
		const char *variable = joined(more->items[i], environ);
		if (!variable || strings_add(&all, variable) < 0)
			return NULL;
	}
	for (char **own = environ; *own; own++)
		if (!value_of(*own, MARK) && !replaced(more, *own) && strings_add(&all, *own) < 0)
			return NULL;
	return strings_add(&all, mark) < 0 ? NULL : all.items;
}

// execute tries the environments from the best one to the process's own, which fits within any limits.
static void execute(const struct run *run, const struct strings *more, const char *mark)
{
	const struct strings none = {0};
	char **environment = variables(more, mark);
	if (environment)
		execve(run->executable, run->arguments, environment);
	if (more->count && (environment = variables(&none, mark)))
		execve(run->executable, run->arguments, environment);
	execve(run->executable, run->arguments, environ);
}

void run_original(struct run *run, bool children_too)
{
	const struct strings none = {0};
	char buffer[64];
	struct text mark = text_of(buffer, sizeof buffer);
	text_add(&mark, MARK "=");
	if (children_too) {
		text_byte(&mark, '1');
	} else {
		text_add(&mark, "pid:");
		text_number(&mark, getpid());
	}
	if (give_back(run) < 0)
		note_add(run, "message", "the inherited state of the process could not be restored completely");
	execute(run, &none, buffer);
}

// receive reads the variables that nsys passed to the stand-in, each with its null and an empty one at the end, until the pipe is closed.
static int receive(int from, struct strings *variables)
{
	static char buffer[MAX_VARIABLES];
	size_t length = 0;
	for (ssize_t got; length < sizeof buffer && (got = read(from, buffer + length, sizeof buffer - length)) != 0;) {
		if (got < 0 && errno != EINTR)
			return -1;
		length += got < 0 ? 0 : (size_t)got;
	}
	// Without the empty variable at the end, the supervisor has exited.
	if (!length || buffer[length - 1] || (length > 1 && buffer[length - 2]))
		return -1;
	for (const char *variable = buffer; *variable; variable += strlen(variable) + 1)
		if (strings_add(variables, variable) < 0)
			return -1;
	return 0;
}

// become runs in the child, which executes the process once it has received the variables of nsys. Signals to it stay pending until then.
static _Noreturn void become(const struct run *run, pid_t parent, int from)
{
	struct strings more = {0};
	// The process is killed with this one, as if it ran in its place.
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
		_exit(127);
	// nsys reads the names of processes before it starts its program.
	(void)prctl(PR_SET_NAME, base_name(run->executable), 0, 0, 0);
	if (receive(from, &more) < 0 || give_back(run) < 0)
		_exit(127);
	execute(run, &more, MARK "=1");
	_exit(errno == ENOENT ? 127 : 126);
}

int process_start(struct run *run)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	pid_t parent = getpid(), child = fork();
	if (child == 0) {
		if (close(ends[1]) < 0)
			_exit(127);
		become(run, parent, ends[0]);
	}
	int failed = errno;
	run->go = ends[1];
	if (close(ends[0]) < 0 || child < 0) {
		errno = failed;
		return -1;
	}
	run->process = child;
	return 0;
}

int process_go(struct run *run)
{
	int failed = 0;
	for (size_t i = 0; !failed && i < run->variables.count; i++)
		failed = write_all(run->go, run->variables.items[i], strlen(run->variables.items[i]) + 1);
	failed |= write_all(run->go, "", 1);
	failed |= close(run->go);
	run->go = closed;
	return failed;
}

static int ascending(const void *one, const void *other)
{
	return *(const int *)one - *(const int *)other;
}

int close_inherited(const struct run *run)
{
	int keep[] = {
		run->folder, run->session_note.file, run->recording.note.file, run->log.file, run->log.from, run->slot, run->up, run->down,
		run->signals, run->asks,
	};
	const size_t count = sizeof keep / sizeof *keep;
	unsigned int first = 0;
	qsort(keep, count, sizeof *keep, ascending);
	for (size_t i = 0; i < count; i++) {
		if (keep[i] == closed)
			continue;
		if ((unsigned int)keep[i] > first && close_range(first, (unsigned int)keep[i] - 1, 0) < 0)
			return -1;
		first = (unsigned int)keep[i] + 1;
	}
	return close_range(first, ~0U, 0);
}

_Noreturn void exit_as(int status)
{
	const struct rlimit none = {0, 0};
	sigset_t one;
	if (!WIFSIGNALED(status))
		_exit(WEXITSTATUS(status));
	int number = WTERMSIG(status);
	// The process has already written its core dump.
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &none) < 0)
		_exit(128 + number);
	// The handler of SIGKILL cannot be changed.
	if (number != SIGKILL && signal(number, SIG_DFL) == SIG_ERR)
		_exit(128 + number);
	if (sigemptyset(&one) < 0 || sigaddset(&one, number) < 0 || kill(getpid(), number) < 0 || sigprocmask(SIG_UNBLOCK, &one, NULL) < 0)
		_exit(128 + number);
	// The kernel does not terminate the first process of a container by its own signals.
	_exit(128 + number);
}
