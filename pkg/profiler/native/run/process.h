// The process that is profiled, or was to be.
#ifndef PRISM_RUN_PROCESS_H
#define PRISM_RUN_PROCESS_H

#include "run.h"

// The variable by which the library and prism-run know what has been seen already.
#define MARK "PRISM_PROFILED"

// take_over remembers and changes what this process has of the process: signals, umask.
int take_over(struct run *run);

// give_back restores all of it, so that an execution begins with what was inherited.
int give_back(const struct run *run);

// adopt_none leaves the processes whose parents exit from now on to their next ancestor, as without this process, which needs those of nsys.
void adopt_none(const struct run *run);

// run_original executes the process in place of this one. It returns where the kernel refuses.
void run_original(struct run *run, bool children_too);

// process_start makes the child that will execute the process: nsys lists it with its name where it is there before nsys.
int process_start(struct run *run);

// process_go has the child execute the process, with the variables that nsys gave the stand-in where there are any.
int process_go(struct run *run);

// close_inherited closes the process's files in this process.
int close_inherited(const struct run *run);

// exit_as ends this process as the process ended.
_Noreturn void exit_as(int status);

#endif
