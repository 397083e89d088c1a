// The library that the loader loads into each process of a container, through /etc/ld.so.preload. If the command line of the process
// matches the plan of the container's claim, it executes prism-run in place of the process. It uses no C library, and neither provides nor
// needs symbols, so it can be loaded next to any other library. If anything fails, the process continues without it.
#include "sys.h"
#include "../match/match.h"

#define PLAN "/run/prism/plan/match"
#define PRISM_RUN "/run/prism/programs/prism-run"

enum {
	max_plan = 1 << 20,
	small_plan = 8 << 10,
	max_path = 4096,
	max_auxiliary = 64,
	target_at = 20, // in the plan
	AT_BASE_ = 7,
	AT_SECURE_ = 23,
};

// open_file returns a descriptor, or a negative error.
static long open_file(const char *path)
{
	return prism_syscall(SYS_openat, AT_FDCWD_, (long)path, O_CLOEXEC_ | O_NOFOLLOW_, 0, 0, 0);
}

static long status_of(long directory, const char *path, long flags, struct file_status *status)
{
	return prism_syscall(SYS_newfstatat, directory, (long)path, (long)status, flags, 0, 0);
}

// map returns null on failure.
static void *map(unsigned long size, long protection, long flags, long file)
{
	long address = prism_syscall(SYS_mmap, 0, (long)size, protection, flags, file, 0);
	return address < 0 && address > -4096 ? (void *)0 : (void *)address;
}

static void unmap(void *address, unsigned long size)
{
	prism_syscall(SYS_munmap, (long)address, (long)size, 0, 0, 0, 0);
}

// suffix returns the text after the prefix, or null.
static const char *suffix(const char *text, const char *prefix)
{
	while (*prefix)
		if (*text++ != *prefix++)
			return (void *)0;
	return text;
}

// is_own_pid returns whether the text is the decimal id of this process.
static int is_own_pid(const char *text)
{
	unsigned long pid = 0;
	for (int i = 0; text[i]; i++) {
		if (i == 10 || text[i] < '0' || text[i] > '9')
			return 0;
		pid = pid * 10 + (unsigned long)(text[i] - '0');
	}
	return pid == (unsigned long)prism_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

// is_marked returns whether prism-run has already seen this process: "1" marks the process and its descendants, "pid:" one process only.
static int is_marked(char **environment)
{
	for (; *environment; environment++) {
		const char *value = suffix(*environment, "PRISM_PROFILED=");
		if (!value)
			continue;
		const char *pid = suffix(value, "pid:");
		if (!pid || is_own_pid(pid))
			return 1;
	}
	return 0;
}

// is_plain returns whether the process has the same rights as its parent, and was not started by executing the loader: otherwise its file
// and its arguments do not belong together.
static int is_plain(char **environment)
{
	int secure = 1, loaded = 0;
	while (*environment)
		environment++;
	// Variables that the loader removed leave more nulls.
	while (!*environment)
		environment++;
	const unsigned long *auxiliary = (const unsigned long *)environment;
	for (int i = 0; i < max_auxiliary && auxiliary[0]; i++, auxiliary += 2) {
		if (auxiliary[0] == AT_SECURE_)
			secure = auxiliary[1] != 0;
		if (auxiliary[0] == AT_BASE_)
			loaded = auxiliary[1] != 0;
	}
	return !secure && loaded;
}

// executable writes the path of the process's file.
static int executable(char *path)
{
	long size = prism_syscall(SYS_readlinkat, AT_FDCWD_, (long)"/proc/self/exe", (long)path, max_path - 1, 0, 0);
	if (size <= 0 || size >= max_path - 1 || path[0] != '/')
		return 0;
	path[size] = 0;
	return 1;
}

// is_current returns whether executing the path would execute the process's file: the file may have been renamed or replaced, or may never
// have had a path.
static int is_current(const char *path)
{
	struct file_status own, named;
	return status_of(AT_FDCWD_, "/proc/self/exe", 0, &own) == 0 && status_of(AT_FDCWD_, path, 0, &named) == 0 &&
	       own.device == named.device && own.inode == named.inode;
}

// selects returns whether the plan selects the process, and writes the path of its file. Reading the path takes longer than matching, so it
// is not read if the arguments do not match.
static int selects(const void *plan, unsigned long size, int argc, char **argv, char *path)
{
	if (size < PRISM_HEADER)
		return 0;
	if (prism_u32_at((const prism_u8 *)plan + target_at) != PRISM_EXECUTABLE && !prism_match(plan, size, argc, argv, ""))
		return 0;
	return executable(path) && prism_match(plan, size, argc, argv, path);
}

// selects_large does the same as selects for a large plan.
static int selects_large(long file, int argc, char **argv, char *path)
{
	struct file_status status;
	if (status_of(file, "", AT_EMPTY_PATH_, &status) < 0 || (status.mode & S_IFMT_) != S_IFREG_ || status.size <= 0 || status.size > max_plan)
		return 0;
	void *plan = map((unsigned long)status.size, PROT_READ_, MAP_PRIVATE_ | MAP_POPULATE_, file);
	if (!plan)
		return 0;
	int found = selects(plan, (unsigned long)status.size, argc, argv, path);
	unmap(plan, (unsigned long)status.size);
	return found;
}

// matches returns whether the process must run with the profiler, and writes the path of its file. A small plan is read, because that is
// faster than mapping it.
static int matches(int argc, char **argv, char *path)
{
	prism_u8 plan[small_plan];
	long file = open_file(PLAN);
	if (file < 0)
		return 0;
	long size = prism_syscall(SYS_read, file, (long)plan, small_plan, 0, 0, 0);
	int found = 0;
	if (size == small_plan)
		found = selects_large(file, argc, argv, path);
	else if (size > 0)
		found = selects(plan, (unsigned long)size, argc, argv, path);
	prism_syscall(SYS_close, file, 0, 0, 0, 0, 0);
	return found;
}

// start executes prism-run with the path of the process's file and its arguments. It returns only on failure.
static void start(int argc, char **argv, char **environment, char *path)
{
	unsigned long size = ((unsigned long)argc + 3) * sizeof(char *);
	char **all = map(size, PROT_READ_ | PROT_WRITE_, MAP_PRIVATE_ | MAP_ANONYMOUS_, -1);
	if (!all)
		return;
	all[0] = (char *)PRISM_RUN;
	all[1] = path;
	for (int i = 0; i < argc; i++)
		all[i + 2] = argv[i];
	prism_syscall(SYS_execve, (long)PRISM_RUN, (long)all, (long)environment, 0, 0, 0);
	unmap(all, size);
}

__attribute__((used)) static void initialize(int argc, char **argv, char **environment)
{
	char path[max_path];
	if (argc < 1 || !argv || !environment || !is_plain(environment) || is_marked(environment))
		return;
	if (matches(argc, argv, path) && is_current(path))
		start(argc, argv, environment, path);
}

__attribute__((section(".init_array"), used)) static void (*const constructor)(int, char **, char **) = initialize;
