#ifndef PRISM_RUN_FORWARD_H
#define PRISM_RUN_FORWARD_H

#include "run.h"

#include <sys/signalfd.h>

// forward passes a signal that this process received on to the process, if the process has not received it too.
void forward(struct run *run, const struct signalfd_siginfo *received);

// stop_alike stops this process if a terminal stopped the process, so that a shell sees that its job stopped.
void stop_alike(int status);

#endif
