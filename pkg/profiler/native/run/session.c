#include "session.h"

#include "name.h"
#include "range.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	max_note = 64 << 10,
	max_log = 64 << 10,
	max_line = 2048,
	max_value = 1024,
	max_file = 200,
	max_path = 4096 + 16,
	max_entries = 1024, // maximum number of sessions of a claim with notes
	max_ranges = 16, // the maximum in the API
};

// extensions are the extensions of the files of nsys.
static const char *const extensions[] = {".nsys-rep", ".qdstrm"};

static void hexadecimal(struct text *to, uint64_t number)
{
	for (int shift = 60; shift >= 0; shift -= 4)
		text_byte(to, "0123456789abcdef"[number >> shift & 15]);
}

// line_add builds "key=value\n" of printable characters.
static void line_add(struct text *line, const char *key, const char *value)
{
	text_add(line, key);
	text_byte(line, '=');
	for (size_t i = 0; value[i] && i < max_value; i++)
		text_byte(line, (unsigned char)value[i] < ' ' || value[i] == 127 ? '?' : value[i]);
	text_byte(line, '\n');
}

void note_add(struct run *run, const char *key, const char *value)
{
	char buffer[max_line];
	struct text line = text_of(buffer, sizeof buffer);
	line_add(&line, key, value);
	if (run->note == closed || run->note_size + line.length > max_note)
		return;
	if (write_all(run->note, line.start, line.length) < 0) {
		// A full disk stays full.
		run->note_size = max_note;
		return;
	}
	run->note_size += line.length;
}

void note_number(struct run *run, const char *key, int64_t number)
{
	char digits[24];
	struct text text = text_of(digits, sizeof digits);
	text_number(&text, number);
	note_add(run, key, digits);
}

void note_failure(struct run *run, const char *reason, const char *message, int error)
{
	char buffer[max_value];
	struct text text = text_of(buffer, sizeof buffer);
	text_add(&text, message);
	if (error) {
		text_add(&text, ": ");
		text_add(&text, strerror(error));
	}
	note_add(run, "reason", reason);
	note_add(run, "message", buffer);
	note_add(run, "state", "Failed");
}

void note_tool_failure(struct run *run, const char *reason, const char *message)
{
	char buffer[max_value];
	struct text text = text_of(buffer, sizeof buffer);
	size_t size = run->said_size;
	while (size && run->said[size - 1] == ' ')
		size--;
	text_add(&text, message);
	if (size)
		text_add(&text, "; its output ends with: ");
	for (size_t i = 0; i < size; i++)
		text_byte(&text, run->said[i]);
	note_failure(run, reason, buffer, 0);
}

void session_path(const struct run *run, const char *file, struct text *to)
{
	text_add(to, RESULTS "/");
	text_add(to, run->session);
	text_byte(to, '/');
	text_add(to, file);
}

// crowded returns whether the results contain so many sessions that another note is useless.
static bool crowded(void)
{
	DIR *folder = opendir(RESULTS);
	if (!folder)
		return false;
	size_t count = 0;
	while (count <= max_entries && readdir(folder))
		count++;
	return closedir(folder) == 0 && count > max_entries;
}

// folder_make creates the session's folder.
static int folder_make(struct run *run)
{
	char path[256];
	struct text session = text_of(run->session, sizeof run->session), whole = text_of(path, sizeof path);
	text_byte(&session, 's');
	text_number(&session, getpid());
	text_byte(&session, '-');
	hexadecimal(&session, (uint64_t)run->started);
	session_path(run, "", &whole);
	path[whole.length - 1] = 0;
	if (crowded()) {
		errno = EDQUOT;
		return -1;
	}
	if (mkdir(path, 0700) < 0)
		return -1;
	run->folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return run->folder < 0 ? -1 : 0;
}

// elsewhere returns whether the report stays in the container.
static bool elsewhere(const struct run *run)
{
	return strcmp(run->plan.dir, RESULTS) != 0;
}

static void note_begin(struct run *run)
{
	const struct context *c = &run->context;
	const struct plan *p = &run->plan;
	note_add(run, "version", "1");
	note_add(run, "pod", c->pod);
	note_add(run, "namespace", *c->namespace ? c->namespace : p->namespace);
	note_add(run, "container", c->container);
	note_add(run, "process", base_name(run->executable));
	note_number(run, "pid", getpid());
	note_number(run, "started", run->started);
	note_add(run, "file", run->file);
	note_add(run, "tool", p->tool);
	if (elsewhere(run))
		note_add(run, "path", run->output);
	if (c->several)
		note_add(run, "reason", "SeveralProfiles");
	note_add(run, "state", "Starting");
}

// name_report expands the templates of the report's name and folder.
static void name_report(struct run *run)
{
	char unique[17];
	struct text hex = text_of(unique, sizeof unique);
	hexadecimal(&hex, (uint64_t)run->started);
	struct names names = {
		.plan = &run->plan, .context = &run->context, .process = base_name(run->executable), .session = unique, .started = run->started,
	};
	struct text file = text_of(run->file, max_file), output = text_of(run->output, sizeof run->output);
	expand_file(&names, run->plan.file, &file);
	if (!strcmp(run->plan.dir, RESULTS)) {
		session_path(run, "report", &output);
		return;
	}
	expand_folder(&names, run->plan.dir, &output);
	text_byte(&output, '/');
	text_add(&output, run->file);
}

int session_open(struct run *run)
{
	if (folder_make(run) < 0)
		return -1;
	run->note = openat(run->folder, "note", O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (run->note < 0 || flock(run->note, LOCK_EX | LOCK_NB) < 0)
		return -1;
	name_report(run);
	note_begin(run);
	return 0;
}

// report_path writes the path of a report: 0 is the number of the only one, others are numbers of ranges.
static void report_path(const struct run *run, int number, const char *extension, char path[max_path])
{
	struct text to = text_of(path, max_path);
	text_add(&to, run->output);
	if (number) {
		text_byte(&to, '.');
		text_number(&to, number);
	}
	text_add(&to, extension);
}

// folders_make creates each missing folder above the report.
static int folders_make(const char *report)
{
	char path[4096];
	struct text to = text_of(path, sizeof path);
	text_add(&to, report);
	for (char *slash = path; (slash = strchr(slash + 1, '/'));) {
		*slash = 0;
		if (mkdir(path, 0755) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
			return -1;
		*slash = '/';
	}
	*strrchr(path, '/') = 0;
	return access(path, W_OK | X_OK);
}

// taken returns whether a report of that name already exists, which nsys would not overwrite.
static bool taken(const struct run *run)
{
	for (int number = 0; number <= max_ranges; number++)
		for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
			char path[max_path];
			struct stat status;
			report_path(run, number, extensions[i], path);
			if (lstat(path, &status) == 0)
				return true;
		}
	return false;
}

// rename_report renames the report if it stays in the container and an earlier report uses its name.
static void rename_report(struct run *run)
{
	char unique[20];
	struct text suffix = text_of(unique, sizeof unique);
	if (!elsewhere(run) || !taken(run))
		return;
	text_byte(&suffix, '_');
	hexadecimal(&suffix, (uint64_t)run->started);
	struct text file = {run->file, sizeof run->file, strlen(run->file)}, output = {run->output, sizeof run->output, strlen(run->output)};
	text_add(&file, unique);
	text_add(&output, unique);
	note_add(run, "file", run->file);
	note_add(run, "path", run->output);
}

void pipes_path(const struct run *run, const char *file, struct text *to)
{
	text_add(to, PIPES "/");
	text_add(to, run->session);
	text_add(to, file);
}

static int pipe_make(int folder, const char *name)
{
	struct stat status;
	if (mkfifoat(folder, name, 0600) < 0)
		return -1;
	// Opened for reading and writing, a pipe never blocks and is never closed while this process holds it.
	int file = openat(folder, name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (file < 0)
		return -1;
	if (fstat(file, &status) == 0 && S_ISFIFO(status.st_mode) && status.st_uid == geteuid())
		return file;
	if (close(file) == 0)
		errno = EPERM;
	return -1;
}

// pipes_make creates the pipes to the stand-in in a place that only this container can reach: data in them becomes variables of the
// process, and the results are shared by all containers of the claim.
static int pipes_make(struct run *run)
{
	char path[256];
	struct text to = text_of(path, sizeof path);
	pipes_path(run, "", &to);
	if (mkdir(path, 0700) < 0)
		return -1;
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0)
		return -1;
	run->up = pipe_make(folder, "up");
	run->down = pipe_make(folder, "down");
	if (run->up < 0 || run->down < 0 || close(folder) < 0)
		return -1;
	return 0;
}

void pipes_remove(struct run *run)
{
	static const char *const names[] = {"/up", "/down", ""};
	int failed = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char path[256];
		struct text to = text_of(path, sizeof path);
		pipes_path(run, names[i], &to);
		failed |= *names[i] ? unlink(path) : rmdir(path);
	}
	if (failed)
		note_add(run, "message", "the pipes to the stand-in could not be removed");
}

int session_prepare(struct run *run)
{
	if (mkdirat(run->folder, "tmp", 0700) < 0 || pipes_make(run) < 0)
		return -1;
	if (folders_make(run->output) < 0)
		return -1;
	rename_report(run);
	run->log = openat(run->folder, "nsys.log", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return run->log < 0 ? -1 : 0;
}

// said_keep keeps the end of the output of nsys; line ends and white space become one space.
static void said_keep(struct run *run, const char *output, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		bool blank = (unsigned char)output[i] <= ' ';
		if (blank && (!run->said_size || run->said[run->said_size - 1] == ' '))
			continue;
		if (run->said_size == sizeof run->said)
			memmove(run->said, run->said + 1, --run->said_size);
		run->said[run->said_size++] = blank ? ' ' : output[i];
	}
}

bool log_copy(struct run *run)
{
	char buffer[4096];
	for (;;) {
		ssize_t got = read(run->tool_output, buffer, sizeof buffer);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN; // reading a terminal without a writer fails with another error
		if (got == 0)
			return false;
		range_seen(run, buffer, (size_t)got);
		said_keep(run, buffer, (size_t)got);
		size_t keep = (size_t)got;
		if (keep > max_log - run->log_size)
			keep = max_log - run->log_size;
		run->log_size += keep;
		if (keep && write_all(run->log, buffer, keep) < 0)
			run->log_size = max_log;
	}
}

// report_find writes the path of a report and returns its size; 0: there is none.
static int64_t report_find(const struct run *run, int number, char path[max_path])
{
	for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
		struct stat status;
		report_path(run, number, extensions[i], path);
		if (lstat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
			return status.st_size;
	}
	return 0;
}

// range_note notes the size of the report of a further range: its path differs from the first one in the number.
static void range_note(struct run *run, int number, int64_t size)
{
	char key[16];
	struct text text = text_of(key, sizeof key);
	text_add(&text, "size.");
	text_number(&text, number);
	note_number(run, key, size);
}

bool report_note(struct run *run)
{
	bool found = false;
	for (int number = 0; number <= max_ranges; number++) {
		char path[max_path];
		int64_t size = report_find(run, number, path);
		if (!size)
			continue;
		if (elsewhere(run) && found) {
			range_note(run, number, size);
		} else if (elsewhere(run)) {
			note_number(run, "size", size);
			note_add(run, "path", path);
		}
		found = true;
		if (!number)
			break;
	}
	return found;
}
