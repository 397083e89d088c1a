/* Shared declarations of nvidia-cuda-mps-control. */
#ifndef SIMGPU_MPS_CONTROL_H
#define SIMGPU_MPS_CONTROL_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "mps.h"

#define MAX_PEERS 256
#define MAX_SERVERS 16

struct limits {
	double percentage;
	uint64_t memory[MPS_DEVICES]; /* bytes; 0: none */
};

struct server {
	pid_t pid; /* 0: none */
	uid_t uid;
	int fd;
	int ready, faulted, stopping;
	struct limits limits;
};

/* A connection. A client's connection stays here until the daemon passes it to a server. */
struct peer {
	int fd;
	pid_t pid;
	uid_t uid;
	int privileged, waits;
	enum { PEER_NEW, PEER_UI, PEER_CLIENT } kind;
};

struct control {
	int multi_user;
	int quitting, failed;
	int has_deadline;
	long long deadline; /* of quit -t, in monotonic milliseconds */
	struct limits defaults;
	int priority;
	struct server servers[MAX_SERVERS];
	struct peer peers[MAX_PEERS];
	int peer_count;
	int start_wanted; /* by start_server, for start_uid */
	uid_t start_uid;
};

extern struct control control;

void control_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* mps_servers.c */
struct server *server_of(pid_t pid);
void server_stop(struct server *server, const char *how);
void server_message(struct server *server);
int server_ask(struct server *server, const char *question, char *answer, size_t room);
void servers_assign(void);
int servers_running(void);

/* mps_commands.c: writes the reply; not 0 when the daemon is to quit. */
int command(struct peer *peer, char *line, FILE *reply);

/* mps_ui.c: sends the commands of stdin; the exit status. */
int user_interface(void);

#endif
