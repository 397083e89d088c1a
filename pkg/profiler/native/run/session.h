// The session's folder in the results of the claim, with the temporary files of nsys, and the pipes to the stand-in. If a process is
// recorded from its start, that is also the folder of the recording.
#ifndef PRISM_RUN_SESSION_H
#define PRISM_RUN_SESSION_H

#include "run.h"

// session_open creates the folder and begins the note. The note stays locked while this process runs.
int session_open(struct run *run);

// session_state rewrites the state in the note of a process that waits, in place.
void session_state(struct run *run, const char *state);

// session_failed turns the session of a process that will not wait into a recording, whose note will contain the failure. For other
// processes it does nothing.
void session_failed(struct run *run);

// session_prepare creates the files of nsys, and the folder of the report.
int session_prepare(struct run *run);

// pipes_path writes the absolute path of a file among the pipes to the stand-in, or of their folder; pipes_remove removes all.
void pipes_path(const struct run *run, const char *file, struct text *to);
void pipes_remove(struct run *run);

// session_path writes the absolute path of a file in the session's folder, folder_path in a folder of the results.
void session_path(const struct run *run, const char *file, struct text *to);
void folder_path(const char *name, const char *file, struct text *to);

// folder_make creates a folder in the results, and returns a descriptor of it. folder_name writes its name: the kind, the process's id and
// a time.
int folder_make(char kind, int64_t started, char name[FOLDER_NAME]);
void folder_name(char kind, int64_t started, char name[FOLDER_NAME]);

#endif
