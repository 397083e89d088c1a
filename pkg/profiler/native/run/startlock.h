// The processes of a pod start nsys one after another.
#ifndef PRISM_RUN_STARTLOCK_H
#define PRISM_RUN_STARTLOCK_H

#include "run.h"

// How long to wait before the next lock_try, in milliseconds.
enum { lock_pause = 10 };

// lock_try returns whether no other process of the pod starts nsys. Closing the descriptor releases the lock; closed: there is nothing to
// lock, or lock_try was not called.
bool lock_try(int *lock);

// start_lock waits until lock_try succeeds, at most half of the time that is left to start. It returns false if others hold it all the
// time, or the process must not wait.
bool start_lock(struct run *run, int *lock);

#endif
