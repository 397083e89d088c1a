#include "note.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	max_note = 64 << 10,
	max_line = 2048,
	max_value = 1024,
};

int note_open(struct note *note, int folder, int flags)
{
	note->size = 0;
	note->file = openat(folder, "note", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
	return note->file < 0 || flock(note->file, LOCK_EX | LOCK_NB) < 0 ? -1 : 0;
}

void note_close(struct note *note)
{
	if (note->file != closed && close(note->file) < 0)
		note->size = 0;
	note->file = closed;
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

void note_put(struct note *note, const char *key, const char *value)
{
	char buffer[max_line];
	struct text line = text_of(buffer, sizeof buffer);
	line_add(&line, key, value);
	if (note->file == closed || note->size + line.length > max_note)
		return;
	if (write_all(note->file, line.start, line.length) < 0) {
		// A full disk stays full.
		note->size = max_note;
		return;
	}
	note->size += line.length;
}

static void put_number(struct note *note, const char *key, int64_t number)
{
	char digits[24];
	struct text text = text_of(digits, sizeof digits);
	text_number(&text, number);
	note_put(note, key, digits);
}

void note_process(const struct run *run, struct note *note, int64_t started)
{
	const struct context *c = &run->context;
	note_put(note, "version", "1");
	note_put(note, "pod", c->pod);
	note_put(note, "namespace", *c->namespace ? c->namespace : run->plan.namespace);
	note_put(note, "container", c->container);
	note_put(note, "process", base_name(run->executable));
	put_number(note, "pid", getpid());
	put_number(note, "started", started);
}

void note_add(struct run *run, const char *key, const char *value)
{
	note_put(&run->recording.note, key, value);
}

void note_number(struct run *run, const char *key, int64_t number)
{
	put_number(&run->recording.note, key, number);
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

void note_tool_failure(struct run *run, const struct log *log, const char *reason, const char *message)
{
	char buffer[max_value];
	struct text text = text_of(buffer, sizeof buffer);
	size_t size = log->said_size;
	while (size && log->said[size - 1] == ' ')
		size--;
	text_add(&text, message);
	if (size)
		text_add(&text, "; its output ends with: ");
	for (size_t i = 0; i < size; i++)
		text_byte(&text, log->said[i]);
	note_failure(run, reason, buffer, 0);
}

void note_exit(struct run *run)
{
	if (!run->process_ended || run->exit_noted)
		return;
	run->exit_noted = true;
	note_number(run, "exited", wall_clock());
	note_number(run, "exit", code(run->process_status));
}

int code(int status)
{
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}
