// The profiler beside the process.
#ifndef PRISM_RUN_TOOL_H
#define PRISM_RUN_TOOL_H

#include "run.h"

// tool_start starts nsys with the stand-in as its program, in a session of its own and without any of the process's files.
int tool_start(struct run *run);

// tool_finish has the stand-in exit, so that nsys ends the recording and writes the report.
void tool_finish(struct run *run);

// tool_kill kills nsys and every process that it started.
void tool_kill(struct run *run);

// stand_in is the program that nsys starts: it sends its environment and stays until it is to exit.
int stand_in(const char *folder);

// variables_forget leaves out what a stand-in has sent whose nsys exited.
void variables_forget(struct run *run);

// variables_read reads what the stand-in sent so far: 1 when that is all, 0 when more is to come, -1 where it makes no sense.
int variables_read(struct run *run);

#endif
