#ifndef PRISM_RUN_SUPERVISE_H
#define PRISM_RUN_SUPERVISE_H

#include "run.h"

// A second in milliseconds, and the time of what is never due.
enum { second = 1000 };
#define never INT64_MAX

// supervise starts nsys and the process, and exits in the same way as the process. It returns if the process could not be started.
int supervise(struct run *run);

// not_to_wait returns why the process must not wait for nsys any more, or null.
const char *not_to_wait(const struct run *run);

// reap collects the children that exited.
void reap(struct run *run);

// watch_plan wakes this process at a change in the plan's folder.
void watch_plan(struct run *run);

// earlier returns the earlier of two times.
int64_t earlier(int64_t one, int64_t other);

// stop_by returns when recording ends because of SIGTERM, term_by when nsys is killed because of it, and report_by when nsys is killed that
// writes a report.
int64_t stop_by(const struct run *run);
int64_t term_by(const struct run *run);
int64_t report_by(const struct run *run);

#endif
