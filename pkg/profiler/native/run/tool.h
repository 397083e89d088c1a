// The profiler of the process.
#ifndef PRISM_RUN_TOOL_H
#define PRISM_RUN_TOOL_H

#include "run.h"

// tool_start starts nsys with the stand-in as its program, in its own session and without any of the process's files.
int tool_start(struct run *run);

// tool_finish makes the stand-in exit, so that nsys ends the recording and writes the report.
void tool_finish(struct run *run);

// tool_kill kills nsys and every process that it started.
void tool_kill(struct run *run);

// stand_in is the program that nsys starts: it sends its environment and stays until it must exit.
int stand_in(const char *folder);

// variables_forget discards the variables from a stand-in whose nsys exited.
void variables_forget(struct run *run);

// variables_read reads the data from the stand-in so far: 1 if it is complete, 0 if more is expected, -1 if it is invalid.
int variables_read(struct run *run);

#endif
