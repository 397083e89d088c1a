// A process that is recorded from its start, or from a range, until it exits.
#ifndef PRISM_RUN_RECORD_H
#define PRISM_RUN_RECORD_H

#include "run.h"

// See supervisor.
void record_begin(struct run *run);
void record_advance(struct run *run);
int64_t record_due(const struct run *run);

#endif
