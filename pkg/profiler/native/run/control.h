// A command of the plugin for one session; see pkg/profiler/session.
#ifndef PRISM_RUN_CONTROL_H
#define PRISM_RUN_CONTROL_H

#include "base.h"

// COMMAND_ID is the size of an id, a UUID, with the terminating null.
#define COMMAND_ID 37

enum { max_control = 512 };

struct control {
	char id[COMMAND_ID];
	enum verb { verb_none, verb_start, verb_stop, verb_cancel } verb;
	int64_t at, until; // nanoseconds since 1970; 0: at once, no end
	int64_t frequency; // of samples in hertz; 0: the claim's
	char backtrace[8]; // "": the claim's
};

// control_parse parses "key=value" lines: 1 if it is a command, 0 if it is not supported but has an id, -1 if it is not a command.
int control_parse(const char *bytes, size_t size, struct control *to);

// control_read parses the command for a session, in the same way.
int control_read(const char *session, struct control *to);

// control_switch returns a switch of the plan, with the command's value of it.
char *control_switch(const struct control *control, const char *given);

#endif
