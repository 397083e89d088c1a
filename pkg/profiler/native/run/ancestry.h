#ifndef PRISM_RUN_ANCESTRY_H
#define PRISM_RUN_ANCESTRY_H

#include <stdbool.h>
#include <sys/types.h>

// below_supervisor returns whether another prism-run is an ancestor of this process.
bool below_supervisor(void);

// in_exec_session returns whether "kubectl exec" or a probe started this process in the container, not its first process.
bool in_exec_session(pid_t init);

#endif
