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

// tool_over kills what is left of nsys, and removes what it shared with this process: nothing is recorded after that.
void tool_over(struct run *run);

// arguments adds the arguments of a command of nsys.
typedef int arguments(const struct run *run, struct strings *to);

// command_start starts another command of nsys for the current recording, in the same way as nsys itself. command_kill kills that command
// and every process that it started, but not nsys beside the process.
int command_start(struct run *run, arguments *of);
void command_kill(struct run *run);

// stand_in is the program that nsys starts: it sends its environment and stays until it must exit.
int stand_in(const char *folder);

// variables_forget discards the variables from a stand-in whose nsys exited.
void variables_forget(struct run *run);

// variables_read reads the data from the stand-in so far: 1 if it is complete, 0 if more is expected, -1 if it is invalid.
int variables_read(struct run *run);

#endif
