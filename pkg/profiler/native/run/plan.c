#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	max_plan = 1 << 20,
	max_context = 16 << 10,
	max_seconds = 24 * 3600,
	most_sessions = 16,
};

// set_number sets the field if its key begins the line.
static int set_number(const char *line, const char *key, long least, long most, long *field)
{
	const char *value = after(line, key);
	if (!value)
		return 0;
	return parse_number(value, least, most, field);
}

static int set_flag(const char *line, const char *key, bool *field)
{
	long number = *field;
	int failed = set_number(line, key, 0, 1, &number);
	*field = number;
	return failed;
}

static void set_string(const char *line, const char *key, const char **field)
{
	const char *value = after(line, key);
	if (value)
		*field = value;
}

static int set_item(const char *line, const char *key, struct strings *list)
{
	const char *value = after(line, key);
	return value ? strings_add(list, value) : 0;
}

// plan_line parses one "key=value". Unknown keys are for newer programs.
static int plan_line(struct plan *plan, const char *line)
{
	set_string(line, "claim=", &plan->claim);
	set_string(line, "namespace=", &plan->namespace);
	set_string(line, "claimName=", &plan->claim_name);
	set_string(line, "node=", &plan->node);
	set_string(line, "gpu=", &plan->gpu);
	set_string(line, "tool=", &plan->tool);
	set_string(line, "file=", &plan->file);
	set_string(line, "dir=", &plan->dir);
	return set_item(line, "switch=", &plan->switches) | set_item(line, "env=", &plan->environment) |
	       set_item(line, "startSwitch=", &plan->start_switches) | set_flag(line, "manual=", &plan->manual) |
	       set_number(line, "maxSessions=", 1, most_sessions, &plan->max_sessions) |
	       set_flag(line, "execSessions=", &plan->exec_sessions) | set_flag(line, "failClosed=", &plan->fail_closed) |
	       set_number(line, "readySeconds=", 1, max_seconds, &plan->ready) |
	       set_number(line, "reportSeconds=", 1, max_seconds, &plan->report) |
	       set_number(line, "termSeconds=", 1, max_seconds, &plan->term) |
	       set_number(line, "stopSeconds=", 0, max_seconds, &plan->stop);
}

int plan_read(struct plan *plan)
{
	size_t size;
	*plan = (struct plan){
		.claim = "", .namespace = "", .claim_name = "", .node = "", .gpu = "", .tool = "",
		.file = "{PROCESS_NAME}_{NAMESPACE}_{POD}_{CONTAINER}_{TIMESTAMP}_{UID}", .dir = RESULTS,
		.max_sessions = 1, .ready = 10, .report = 60, .term = 20, .stop = 5,
	};
	char *bytes = read_file(AT_FDCWD, PLAN_FILE, max_plan, &size);
	if (!bytes)
		return -1;
	if (size == 0 || bytes[size - 1] || strcmp(bytes, "version=1")) {
		errno = EPROTO;
		return -1;
	}
	int failed = 0;
	for (const char *line = bytes; line < bytes + size; line += strlen(line) + 1)
		failed |= plan_line(plan, line);
	if (failed || plan->tool[0] != '/' || plan->dir[0] != '/') {
		plan->dir = RESULTS;
		errno = EINVAL;
		return -1;
	}
	return 0;
}

static void context_line(struct context *context, const char *line)
{
	set_string(line, "pod=", &context->pod);
	set_string(line, "namespace=", &context->namespace);
	set_string(line, "container=", &context->container);
	set_string(line, "node=", &context->node);
	// If these are not numbers, the defaults are sufficient.
	(void)set_flag(line, "several=", &context->several);
	(void)set_number(line, "localInit=", 1, INT32_MAX, &context->init);
}

void context_read(struct context *context)
{
	size_t size;
	*context = (struct context){.pod = "", .namespace = "", .container = "", .node = "", .init = 1};
	char *bytes = read_file(AT_FDCWD, CONTAINER_FOLDER "/context", max_context, &size);
	if (!bytes)
		return;
	char *rest = bytes;
	for (char *line; (line = strsep(&rest, "\n"));)
		context_line(context, line);
}

bool stop_wanted(void)
{
	return access(STOP_FILE, F_OK) == 0;
}
