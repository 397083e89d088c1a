#ifndef PRISM_RUN_SUPERVISE_H
#define PRISM_RUN_SUPERVISE_H

#include "run.h"

// supervise starts nsys and the process, and exits in the same way as the process. It returns if the process could not be started.
int supervise(struct run *run);

// not_to_wait returns why the process must not wait for nsys any more, or null.
const char *not_to_wait(const struct run *run);

// reap collects the children that exited.
void reap(struct run *run);

#endif
