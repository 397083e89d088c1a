#include "ancestry.h"
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	max_stat = 4096,
	max_name = 16,
	max_depth = 4096,
	max_walks = 16,
};

struct process {
	char name[max_name + 1];
	pid_t parent;
};

// process_read reads a process's name and parent; processes of other users may be hidden.
static int process_read(pid_t pid, struct process *process)
{
	char path[64];
	size_t size;
	struct text name = text_of(path, sizeof path);
	text_add(&name, "/proc/");
	text_number(&name, pid);
	text_add(&name, "/stat");
	char *stat = read_file(AT_FDCWD, path, max_stat, &size);
	if (!stat)
		return -1;
	// "7 (name) S 1 ..."; a name can contain any character.
	char *open = strchr(stat, '('), *close = strrchr(stat, ')');
	int failed = -1;
	if (open && close && open < close && close[1] == ' ' && close[2] && close[3] == ' ') {
		*close = 0;
		struct text to = text_of(process->name, sizeof process->name);
		text_add(&to, open + 1);
		process->parent = (pid_t)strtol(close + 4, NULL, 10);
		failed = 0;
	} else {
		errno = EPROTO;
	}
	free(stat);
	return failed;
}

bool below_supervisor(void)
{
	struct process process;
	pid_t pid = getppid();
	for (int depth = 0; pid > 0 && depth < max_depth && process_read(pid, &process) == 0; depth++) {
		if (!strcmp(process.name, "prism-run"))
			return true;
		pid = process.parent;
	}
	return false;
}

// walk_up returns whether an ancestor is a child of init's parent and is not init; -1 if an ancestor exited in the meantime, because its
// children then get another parent.
static int walk_up(pid_t init, pid_t parent)
{
	struct process process;
	pid_t pid = getpid();
	for (int depth = 0; pid > 0 && depth < max_depth; depth++) {
		if (pid == init || pid == 1)
			return 0;
		if (process_read(pid, &process) < 0)
			return -1;
		if (process.parent == parent)
			return 1;
		pid = process.parent;
	}
	return 0;
}

bool in_exec_session(pid_t init)
{
	struct process first = {.parent = 0};
	// In the host's pid namespace, a process that is executed while the container ends may start after the first process has exited.
	if (init > 0 && kill(init, 0) < 0 && errno == ESRCH)
		return true;
	if (process_read(init, &first) < 0)
		first.parent = 0;
	// The runtime's own process, which executes the command, exits at about this time.
	int found = -1;
	for (int walk = 0; found < 0 && walk < max_walks; walk++)
		found = walk_up(init, first.parent);
	return found > 0;
}
