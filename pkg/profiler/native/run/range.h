// A recording that begins with a range of the process: nsys says so when the process reaches it.
#ifndef PRISM_RUN_RANGE_H
#define PRISM_RUN_RANGE_H

#include "run.h"

// range_wanted says whether the recording waits for a range.
bool range_wanted(const struct run *run);

// range_await notes that the recording waits, until range_seen finds in what nsys writes that the range was reached. nsys stays after the
// range, as the process waits in the call that ends it until nsys has answered: range_seen finds when the report is there, or those of all
// ranges that are to be recorded.
void range_await(struct run *run);
void range_seen(struct run *run, const char *output, size_t size);

// range_output opens a terminal for the output of nsys, which writes to a pipe only when it exits: ends[0] is read, ends[1] written. It returns
// a negative number where the container has no terminals.
int range_output(int ends[2]);

#endif
