#ifndef PRISM_RUN_SUPERVISE_H
#define PRISM_RUN_SUPERVISE_H

#include "run.h"

// supervise starts nsys and the process, and ends as the process does. It returns where the process could not be started.
int supervise(struct run *run);

// not_to_wait returns why the process is not to wait for nsys any more, else null.
const char *not_to_wait(const struct run *run);

// reap collects the children that ended.
void reap(struct run *run);

#endif
