// The session's folder in the results of the claim: the note, the log of nsys, its temporary files and the report.
#ifndef PRISM_RUN_SESSION_H
#define PRISM_RUN_SESSION_H

#include "run.h"

// session_open creates the folder and begins the note. The note stays locked while this process runs.
int session_open(struct run *run);

// session_prepare creates the files of nsys in the folder, and the folder of the report.
int session_prepare(struct run *run);

// note_add appends "key=value". The note is only information: if it cannot be written, the process still runs.
void note_add(struct run *run, const char *key, const char *value);
void note_number(struct run *run, const char *key, int64_t number);

// note_failure appends why the process runs without the profiler, or why the report is lost.
void note_failure(struct run *run, const char *reason, const char *message, int error);

// note_tool_failure does the same as note_failure, with the end of the output of nsys: its log is deleted with the folder.
void note_tool_failure(struct run *run, const char *reason, const char *message);

// log_copy moves output of nsys to the log, up to its limit. It returns false at the end.
bool log_copy(struct run *run);

// report_note returns whether nsys wrote a report, and notes the path of a report that stays in the container: if several ranges were
// recorded, there is one report for each.
bool report_note(struct run *run);

// pipes_path writes the absolute path of a file among the pipes to the stand-in, or of their folder; pipes_remove removes all.
void pipes_path(const struct run *run, const char *file, struct text *to);
void pipes_remove(struct run *run);

// session_path writes the absolute path of a file in the folder.
void session_path(const struct run *run, const char *file, struct text *to);

#endif
