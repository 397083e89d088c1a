// A recording that starts with a range of the process: nsys reports when the process enters it.
#ifndef PRISM_RUN_RANGE_H
#define PRISM_RUN_RANGE_H

#include "run.h"

// range_wanted returns whether the recording waits for a range.
bool range_wanted(const struct run *run);

// range_await notes that the recording waits, until range_seen finds in the output of nsys that the range was entered. nsys continues after
// the range, because the process waits in the call that ends the range until nsys has answered: range_seen detects that the report is
// written, or the reports of all ranges to record.
void range_await(struct run *run);
void range_seen(struct run *run, const char *output, size_t size);

// range_output opens a terminal for the output of nsys, which writes to a pipe only when it exits: ends[0] is read, ends[1] written. It
// returns a negative number if the container provides no terminals.
int range_output(int ends[2]);

#endif
