// The process that is profiled, or was selected.
#ifndef PRISM_RUN_PROCESS_H
#define PRISM_RUN_PROCESS_H

#include "run.h"

// The variable by which the library and prism-run recognize processes that were already seen.
#define MARK "PRISM_PROFILED"

// take_over stores and changes inherited state of the process: signals, umask.
int take_over(struct run *run);

// give_back restores the inherited state for an execution.
int give_back(const struct run *run);

// adopt_none lets the next ancestor adopt processes whose parents exit from now on, as without this process. This process only adopts for
// nsys.
void adopt_none(const struct run *run);

// run_original executes the process in place of this one. It returns only on failure.
void run_original(struct run *run, bool children_too);

// process_start creates the child that will execute the process: nsys lists it with its name if it exists before nsys.
int process_start(struct run *run);

// process_go lets the child execute the process, with the variables that nsys passed to the stand-in, if any.
int process_go(struct run *run);

// close_inherited closes the process's files in this process.
int close_inherited(const struct run *run);

// exit_as exits this process in the same way as the process.
_Noreturn void exit_as(int status);

#endif
