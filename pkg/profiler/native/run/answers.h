// The answers to the last commands of a session; see pkg/profiler/session.
#ifndef PRISM_RUN_ANSWERS_H
#define PRISM_RUN_ANSWERS_H

#include "control.h"
#include "run.h"

struct answer {
	char id[COMMAND_ID];
	const char *outcome; // null: not answered yet
	int64_t begun, ended; // nanoseconds since 1970; 0: not yet
	char report[FOLDER_NAME]; // the recording's folder; "": none
	char message[193];
};

// answer_known returns whether a command has an answer or is about to have one. answer_of returns the answer to a command, the newest one
// if it was not known.
bool answer_known(const char *id);
struct answer *answer_of(const char *id);

// answer_message sets the message: printable characters, as many as fit.
void answer_message(struct answer *answer, const char *text, size_t size);

// answers_write writes the answers to the session's folder. They are only information: if that fails, the process still runs.
void answers_write(const struct run *run);

#endif
