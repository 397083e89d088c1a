// The files of the plugin and the hook for this container.
#ifndef PRISM_RUN_PLAN_H
#define PRISM_RUN_PLAN_H

#include "base.h"

#define PLAN_FILE "/run/prism/plan/run"
#define STOP_FILE "/run/prism/plan/stop"
#define PLAN_FOLDER "/run/prism/plan"
#define CONTROL_FOLDER "/run/prism/plan/control"
#define CONTAINER_FOLDER "/run/prism/container"
#define PIPES CONTAINER_FOLDER "/pipes"
#define RESULTS "/run/prism/results"
#define PRISM_RUN "/run/prism/programs/prism-run"

// plan configures how processes of a claim are profiled; see pkg/profiler/runplan.
struct plan {
	const char *claim, *namespace, *claim_name, *node, *gpu;
	const char *tool; // path of nsys
	struct strings switches, environment; // of nsys
	struct strings start_switches; // of the command that starts a recording
	const char *file, *dir; // templates
	long max_sessions;
	bool exec_sessions, fail_closed;
	bool manual; // the process waits for commands
	long ready, report, term, stop; // seconds
};

// context is the hook's description of the container.
struct context {
	const char *pod, *namespace, *container, *node;
	bool several; // several claims request a profile for the container; this one's plan is mounted
	long init; // pid of the container's first process, in the container
};

// plan_read fails if the file cannot be read or names no tool.
int plan_read(struct plan *plan);

// context_read ignores errors.
void context_read(struct context *context);

// stop_wanted returns whether recording must end.
bool stop_wanted(void);

#endif
