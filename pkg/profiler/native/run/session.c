#include "session.h"

#include "log.h"
#include "note.h"
#include "recording.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	max_entries = 1024, // maximum number of sessions of a claim with notes
};

void folder_path(const char *name, const char *file, struct text *to)
{
	text_add(to, RESULTS "/");
	text_add(to, name);
	text_byte(to, '/');
	text_add(to, file);
}

void session_path(const struct run *run, const char *file, struct text *to)
{
	folder_path(run->session, file, to);
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

void folder_name(char kind, int64_t started, char name[FOLDER_NAME])
{
	struct text to = text_of(name, FOLDER_NAME);
	text_byte(&to, kind);
	text_number(&to, getpid());
	text_byte(&to, '-');
	text_hexadecimal(&to, (uint64_t)started);
}

int folder_make(char kind, int64_t started, char name[FOLDER_NAME])
{
	char path[256];
	struct text whole = text_of(path, sizeof path);
	folder_name(kind, started, name);
	folder_path(name, "", &whole);
	path[whole.length - 1] = 0;
	if (crowded()) {
		errno = EDQUOT;
		return -1;
	}
	if (mkdir(path, 0700) < 0)
		return -1;
	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void session_state(struct run *run, const char *state)
{
	struct note *note = &run->session_note;
	char lines[128];
	int size = snprintf(lines, sizeof lines, "state=%-16s\nsince=%020lld\n", state, (long long)wall_clock());
	if (note->file != closed && pwrite(note->file, lines, (size_t)size, (off_t)note->size) < 0)
		return; // the state is only information
}

// wait_open opens a session with a folder of its own.
static int wait_open(struct run *run)
{
	run->folder = folder_make('w', run->started, run->session);
	if (run->folder < 0 || note_open(&run->session_note, run->folder, 0) < 0)
		return -1;
	note_process(run, &run->session_note, run->started);
	note_put(&run->session_note, "tool", run->plan.tool);
	session_state(run, "Starting");
	return 0;
}

int session_open(struct run *run)
{
	struct recording *r = &run->recording;
	if (run->plan.manual)
		return wait_open(run);
	run->folder = folder_make('s', run->started, r->name);
	strcpy(run->session, r->name);
	return run->folder < 0 ? -1 : recording_begin(run, run->started, run->folder);
}

void session_failed(struct run *run)
{
	char paths[2][256];
	struct text from = text_of(paths[0], sizeof paths[0]), to = text_of(paths[1], sizeof paths[1]);
	if (!run->plan.manual || run->folder == closed)
		return;
	note_close(&run->session_note);
	(void)unlinkat(run->folder, "note", 0);
	folder_name('s', run->started, run->recording.name);
	folder_path(run->session, "", &from);
	folder_path(run->recording.name, "", &to);
	if (recording_begin(run, run->started, run->folder) == 0 && rename(from.start, to.start) < 0)
		note_add(run, "message", strerror(errno));
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
	if (!run->plan.manual && recording_prepare(run) < 0)
		return -1;
	return log_open(&run->log, run->folder);
}
