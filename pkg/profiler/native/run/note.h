// Notes for the plugin. They are only information: if one cannot be written, the process still runs.
#ifndef PRISM_RUN_NOTE_H
#define PRISM_RUN_NOTE_H

#include "run.h"

// note_open creates the note in a folder and locks it while this process runs.
int note_open(struct note *note, int folder, int flags);

// note_close also unlocks it.
void note_close(struct note *note);

// note_put appends "key=value", note_process the lines about the process.
void note_put(struct note *note, const char *key, const char *value);
void note_process(const struct run *run, struct note *note, int64_t started);

// note_add appends "key=value" to the note of the recording, if there is one.
void note_add(struct run *run, const char *key, const char *value);
void note_number(struct run *run, const char *key, int64_t number);

// note_failure appends why the process runs without the profiler, or why the report is lost.
void note_failure(struct run *run, const char *reason, const char *message, int error);

// note_tool_failure does the same as note_failure, with the end of the output of nsys: its log is deleted with the folder.
void note_tool_failure(struct run *run, const struct log *log, const char *reason, const char *message);

// note_exit appends the exit of the process, once.
void note_exit(struct run *run);

// code returns an exit status, or the negative number of a signal.
int code(int status);

#endif
