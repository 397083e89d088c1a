// The output of a command of nsys, in a file and at its end.
#ifndef PRISM_RUN_LOG_H
#define PRISM_RUN_LOG_H

#include "run.h"

// log_open creates the file in a folder.
int log_open(struct log *log, int folder);

// log_copy copies the output so far to the file, up to its limit: otherwise the pipe becomes full. It closes the pipe at its end.
void log_copy(struct run *run, struct log *log);

// log_end closes the pipe, log_close also the file.
void log_end(struct log *log);
void log_close(struct log *log);

#endif
