// The processes of a pod start nsys one after another.
#ifndef PRISM_RUN_STARTLOCK_H
#define PRISM_RUN_STARTLOCK_H

#include "run.h"

// start_lock waits until no other process of the pod starts nsys, at most half of the time that is left to start. Closing the descriptor
// releases the lock; closed: there is nothing to lock. It returns false if others hold it all the time, or the process must not wait.
bool start_lock(struct run *run, int *lock);

#endif
