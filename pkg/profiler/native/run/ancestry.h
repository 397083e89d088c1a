#ifndef PRISM_RUN_ANCESTRY_H
#define PRISM_RUN_ANCESTRY_H

#include <stdbool.h>
#include <sys/types.h>

// below_supervisor says whether another prism-run runs above this process.
bool below_supervisor(void);

// in_exec_session says whether this process was started in the container by "kubectl exec" or a probe, not by its first process.
bool in_exec_session(pid_t init);

#endif
