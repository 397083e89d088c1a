/* The commands of the control daemon. The replies are the same as from NVIDIA's 535 and 550 daemons; errors of some commands are only in
 * the log. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mps_control.h"

#define GIB (1ull << 30)
#define MIB (1ull << 20)

struct request {
	struct peer *peer;
	FILE *reply;
	char *words[8];
	int count;
};

static void say(struct request *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct request *r, const char *format, ...)
{
	char text[MPS_LINE];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	control_log("%s", text);
	fprintf(r->reply, "%s\n", text);
}

static const char *word(struct request *r, int i)
{
	return i < r->count ? r->words[i] : "";
}

/* Parses an integer; 0 if text is none. */
static int parse_integer(const char *text, long long *value)
{
	char *end;
	*value = strtoll(text, &end, 10);
	return end != text && !*end;
}

static struct server *named_server(struct request *r, int i)
{
	long long pid = atoll(word(r, i));
	struct server *server = server_of((pid_t)pid);
	if (!server)
		say(r, "Server %lld not found", pid);
	return server;
}

/* From 550 on the settings of the daemon need the privileged socket. */
static int may_set(struct request *r)
{
	if (r->peer->privileged || SIMGPU_BRANCH < 550)
		return 1;
	say(r, "Insufficient privileges for UID %u. Control deamon settings can only be modified by the user started it or by the root user.",
	    (unsigned int)r->peer->uid);
	return 0;
}

static int may_change(struct request *r, struct server *server, const char *what)
{
	if (!server)
		return 0;
	if (!r->peer->uid || r->peer->uid == server->uid)
		return 1;
	say(r, "Insufficient privileges for UID %u%s%s", (unsigned int)r->peer->uid, SIMGPU_BRANCH < 550 ? "" : ". ", SIMGPU_BRANCH < 550 ? "" : what);
	return 0;
}

static void set_percentage(struct request *r, struct limits *limits, const char *text)
{
	double value = strtod(text, NULL);
	if (value > 0 && value <= 100)
		limits->percentage = value;
	else
		control_log("Invalid percentage, expected between (0.0, 100.0]");
	say(r, "%.1f", limits->percentage);
}

/* The limit of a device, which need not exist. */
static uint64_t *limit_of(struct limits *limits, const char *device)
{
	char *end;
	long ordinal = strtol(device, &end, 10);
	if (end == device)
		return NULL;
	if (ordinal < 0 || ordinal >= MPS_DEVICES) {
		control_log("Invalid device ordinal!");
		return NULL;
	}
	return &limits->memory[ordinal];
}

static void set_limit(struct limits *limits, const char *device, const char *value)
{
	char *end;
	uint64_t bytes = strtoull(value, &end, 10), *limit = limit_of(limits, device);
	if (limit)
		*limit = bytes * (toupper((unsigned char)*end) == 'G' ? GIB : MIB);
}

static void print_limit(struct request *r, struct limits *limits, const char *device)
{
	uint64_t *limit = limit_of(limits, device);
	if (!limit || !*limit)
		control_log("No default pinned memory limit set for the device!");
	else if (*limit >= GIB)
		say(r, "%lluG", (unsigned long long)(*limit / GIB));
	else
		say(r, "%lluM", (unsigned long long)(*limit / MIB));
}

static int default_settings(struct request *r, const char *name)
{
	if (!strcmp(name, "get_default_active_thread_percentage")) {
		say(r, "%.1f", control.defaults.percentage);
	} else if (!strcmp(name, "set_default_active_thread_percentage")) {
		if (may_set(r))
			set_percentage(r, &control.defaults, word(r, 1));
	} else if (!strcmp(name, "get_default_device_pinned_mem_limit")) {
		print_limit(r, &control.defaults, word(r, 1));
	} else if (!strcmp(name, "set_default_device_pinned_mem_limit")) {
		if (may_set(r))
			set_limit(&control.defaults, word(r, 1), word(r, 2));
	} else if (!strcmp(name, "get_default_client_priority")) {
		say(r, "%d", control.priority);
	} else if (!strcmp(name, "set_default_client_priority")) {
		long long value;
		if (!may_set(r))
			return 1;
		if (!parse_integer(word(r, 1), &value) || value < 0 || value > 1)
			say(r, "Invalid priority value - must be 0 or 1!");
		else
			control.priority = (int)value;
	} else {
		return 0;
	}
	return 1;
}

static int server_settings(struct request *r, const char *name)
{
	static const char *const what = "Only the root user may change settings for another user's server.";
	int gets = !strncmp(name, "get_", 4);
	int percentage = !strcmp(name + 4, "active_thread_percentage"), limit = !strcmp(name + 4, "device_pinned_mem_limit");
	if ((!gets && strncmp(name, "set_", 4)) || (!percentage && !limit))
		return 0;
	struct server *server = named_server(r, 1);
	if (!server || (!gets && !may_change(r, server, what)))
		return 1;
	if (gets && percentage)
		say(r, "%.1f", server->limits.percentage);
	else if (gets)
		print_limit(r, &server->limits, word(r, 2));
	else if (percentage)
		set_percentage(r, &server->limits, word(r, 2));
	else
		set_limit(&server->limits, word(r, 2), word(r, 3));
	return 1;
}

/* Each client of a server, with print. */
static void each_client(struct request *r, struct server *server, void (*print)(struct request *, struct server *, int))
{
	char text[MPS_LINE], *rest;
	if (server_ask(server, "list", text, sizeof text)) {
		say(r, "Server %d is <busy>", (int)server->pid);
		return;
	}
	strtok_r(text, " ", &rest);
	for (char *pid = strtok_r(NULL, " ", &rest); pid; pid = strtok_r(NULL, " ", &rest))
		print(r, server, atoi(pid));
}

static void print_pid(struct request *r, struct server *server, int pid)
{
	(void)server;
	say(r, "%d", pid);
}

static void print_process(struct request *r, struct server *server, int pid)
{
	char path[64], name[256] = "";
	snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
	FILE *file = fopen(path, "r");
	if (file) {
		size_t n = fread(name, 1, sizeof name - 1, file);
		name[n] = 0;
		fclose(file);
	}
	say(r, "%-10d%-10d%-15d%s", pid, 0, (int)server->pid, name);
}

static void ps(struct request *r)
{
	if (!servers_running()) {
		say(r, "Server not found");
		return;
	}
	say(r, "%-10s%-10s%-15s%s", "PID", "ID", "SERVER", "COMMAND");
	for (int i = 0; i < MAX_SERVERS; i++)
		if (control.servers[i].ready && control.servers[i].pid)
			each_client(r, &control.servers[i], print_process);
}

static void terminate(struct request *r)
{
	static const char *const what = "Only the root user may terminate clients on another user's server.";
	char question[64], answer[64];
	struct server *server = named_server(r, 1);
	if (!server) {
		say(r, "Server %s not found!", word(r, 1));
		say(r, "1");
		return;
	}
	if (!may_change(r, server, what))
		return;
	snprintf(question, sizeof question, "terminate %d", atoi(word(r, 2)));
	int failed = server_ask(server, question, answer, sizeof answer) || strcmp(answer, "done");
	if (failed)
		say(r, "Invalid process %d!", atoi(word(r, 2)));
	say(r, "%d", failed);
}

static void start_server(struct request *r)
{
	long long uid;
	if (strcmp(word(r, 1), "-uid") || !parse_integer(word(r, 2), &uid)) {
		say(r, "A user id (UID) is required to start a new server");
	} else if (r->peer->uid && r->peer->uid != uid) {
		say(r, "Insufficient privileges for UID %u%s", (unsigned int)r->peer->uid,
		    SIMGPU_BRANCH < 550 ? "" : ". Only the root user may start server for another user.");
	} else {
		control.start_wanted = 1;
		control.start_uid = (uid_t)uid;
	}
}

static void shutdown_server(struct request *r)
{
	static const char *const what = "Only the root user may shutdown another user's server.";
	struct server *server = named_server(r, 1);
	if (may_change(r, server, what))
		server_stop(server, strcmp(word(r, 2), "-f") ? "shutdown" : "force");
}

static void list_servers(struct request *r)
{
	for (int i = 0; i < MAX_SERVERS; i++)
		if (control.servers[i].pid)
			say(r, "%d", (int)control.servers[i].pid);
}

static void status(struct request *r)
{
	if (r->count < 2) {
		say(r, "A server PID is required");
		return;
	}
	struct server *server = named_server(r, 1);
	if (server)
		say(r, "%s", !server->ready ? "INITIALIZING" : server->faulted ? "FAULT" : "ACTIVE");
}

static int server_command(struct request *r, const char *name)
{
	struct server *server;
	if (!strcmp(name, "get_server_list"))
		list_servers(r);
	else if (!strcmp(name, "start_server"))
		start_server(r);
	else if (!strcmp(name, "shutdown_server"))
		shutdown_server(r);
	else if (!strcmp(name, "terminate_client"))
		terminate(r);
	else if (!strcmp(name, "ps"))
		ps(r);
	else if (!strcmp(name, "get_server_status") && SIMGPU_BRANCH >= 550)
		status(r);
	else if (!strcmp(name, "get_client_list") || (!strcmp(name, "get_device_client_list") && r->count > 1)) {
		if ((server = named_server(r, 1)))
			each_client(r, server, print_pid);
	} else
		return !strcmp(name, "get_device_client_list");
	return 1;
}

static int quit(struct request *r)
{
	struct timespec now;
	if (!r->peer->privileged) {
		say(r, "Not enough privilege to execute quit command");
		return 0;
	}
	if (!strcmp(word(r, 1), "-t")) {
		control_log("quit command issued with timeout of %d", atoi(word(r, 2)));
		clock_gettime(CLOCK_MONOTONIC, &now);
		control.has_deadline = 1;
		control.deadline = now.tv_sec * 1000ll + now.tv_nsec / 1000000 + atoi(word(r, 2)) * 1000ll;
	}
	return 1;
}

int command(struct peer *peer, char *line, FILE *reply)
{
	struct request r = { .peer = peer, .reply = reply };
	char *rest, whole[MPS_LINE];
	control_log("Cmd:%s", line);
	snprintf(whole, sizeof whole, "%s", line);
	for (char *w = strtok_r(line, " \t", &rest); w && r.count < 8; w = strtok_r(NULL, " \t", &rest))
		r.words[r.count++] = w;
	const char *name = word(&r, 0);
	if (!strcmp(name, "quit"))
		return quit(&r);
	if (strlen(name) < 2 || (!default_settings(&r, name) && (strlen(name) < 5 || !server_settings(&r, name)) && !server_command(&r, name)))
		say(&r, "Unknown command \"%s\"", name);
	return 0;
}
