// A process that waits until commands of the plugin record it, any number of times: nsys is beside it, and a folder of its own describes
// the session.
#ifndef PRISM_RUN_WAIT_H
#define PRISM_RUN_WAIT_H

#include "run.h"

// See supervisor.
void wait_begin(struct run *run);
void wait_advance(struct run *run);
int64_t wait_due(const struct run *run);

#endif
