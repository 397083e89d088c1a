// The witness is an idle process in the group of this process: a signal that it received too was sent to the group, and the process has
// received it already. The kernel's information about a signal is the same for both kinds.
#ifndef PRISM_RUN_WITNESS_H
#define PRISM_RUN_WITNESS_H

#include "run.h"

#include <sys/signalfd.h>

// witness_start creates the witness. Without it, each signal counts as sent only to this process.
void witness_start(struct run *run);

// witness_end kills and reaps the witness: neither the group nor the session may outlive this process because of it.
void witness_end(struct run *run);

// witnessed returns whether a signal that this process has just received was sent to its group.
bool witnessed(struct run *run, const struct signalfd_siginfo *received);

#endif
