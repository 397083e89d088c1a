#include "control.h"

#include "plan.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
	max_frequency = 1000000000, // a period of one nanosecond
};

static const char *const verbs[] = {[verb_start] = "Start", [verb_stop] = "Stop", [verb_cancel] = "Cancel"};

static const char *const backtraces[] = {"none", "lbr", "fp", "dwarf"};

// is_id returns whether a text is a UUID in lower case.
static bool is_id(const char *text)
{
	for (size_t i = 0; i + 1 < COMMAND_ID; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		if (dash ? text[i] != '-' : !text[i] || !strchr("0123456789abcdef", text[i]))
			return false;
	}
	return !text[COMMAND_ID - 1];
}

// number reads decimal digits only.
static bool number(const char *text, int64_t most, int64_t *to)
{
	int64_t read = 0;
	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || read > (most - (*text - '0')) / 10)
			return false;
		read = read * 10 + (*text - '0');
	}
	*to = read;
	return true;
}

static bool set_verb(const char *value, enum verb *to)
{
	*to = verb_none;
	for (size_t i = verb_start; i < sizeof verbs / sizeof *verbs; i++)
		if (!strcmp(value, verbs[i]))
			*to = (enum verb)i;
	return *to != verb_none;
}

static bool set_backtrace(const char *value, char to[8])
{
	for (size_t i = 0; i < sizeof backtraces / sizeof *backtraces; i++)
		if (!strcmp(value, backtraces[i])) {
			strcpy(to, backtraces[i]);
			return true;
		}
	return false;
}

// set reads one line, and returns false if its value is not supported. Unknown keys are for newer programs.
static bool set(const char *line, struct control *to)
{
	const char *value;
	if ((value = after(line, "verb=")))
		return set_verb(value, &to->verb);
	if ((value = after(line, "at=")))
		return number(value, INT64_MAX, &to->at);
	if ((value = after(line, "until=")))
		return number(value, INT64_MAX, &to->until);
	if ((value = after(line, "samplingFrequencyHz=")))
		return number(value, max_frequency, &to->frequency);
	if ((value = after(line, "backtrace=")))
		return set_backtrace(value, to->backtrace);
	return true;
}

int control_parse(const char *bytes, size_t size, struct control *to)
{
	char copy[max_control + 1];
	bool supported = true;
	*to = (struct control){.id = ""};
	if (!size || size > max_control || bytes[size - 1] != '\n' || memchr(bytes, 0, size))
		return -1;
	memcpy(copy, bytes, size);
	copy[size - 1] = 0;
	char *rest = copy;
	for (char *line; (line = strsep(&rest, "\n"));) {
		const char *id = after(line, "id=");
		if (id && !is_id(id))
			return -1;
		if (id)
			strcpy(to->id, id);
		supported &= set(line, to);
	}
	if (!*to->id)
		return -1;
	return supported && to->verb != verb_none;
}

int control_read(const char *session, struct control *to)
{
	char path[256];
	size_t size;
	struct text name = text_of(path, sizeof path);
	text_add(&name, CONTROL_FOLDER "/");
	text_add(&name, session);
	char *bytes = read_file(AT_FDCWD, path, max_control, &size);
	if (!bytes)
		return -1;
	int is = control_parse(bytes, size, to);
	free(bytes);
	return is;
}

char *control_switch(const struct control *control, const char *given)
{
	static const char frequency[] = "--sampling-frequency=", period[] = "--sampling-period=", backtrace[] = "--backtrace=";
	char digits[24];
	struct text number = text_of(digits, sizeof digits);
	if (control->frequency && after(given, frequency)) {
		text_number(&number, control->frequency);
		return text_joined(frequency, digits);
	}
	if (control->frequency && after(given, period)) {
		text_number(&number, max_frequency / control->frequency);
		return text_joined(period, digits);
	}
	return *control->backtrace && after(given, backtrace) ? text_joined(backtrace, control->backtrace) : (char *)given;
}
