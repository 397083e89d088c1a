/* The servers of a control daemon: one user uses the GPUs at a time. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mps_control.h"

struct server *server_of(pid_t pid)
{
	for (int i = 0; i < MAX_SERVERS; i++)
		if (pid > 0 && control.servers[i].pid == pid)
			return &control.servers[i];
	return NULL;
}

int servers_running(void)
{
	int count = 0;
	for (int i = 0; i < MAX_SERVERS; i++)
		count += control.servers[i].pid > 0;
	return count;
}

/* An unsuitable PATH is only seen in the exit status of the server. */
static void become_server(uid_t uid, int fd)
{
	if (uid != geteuid() && (setgid(uid) || setuid(uid)))
		_exit(1);
	if (fd == MPS_SERVER_FD || dup2(fd, MPS_SERVER_FD) != MPS_SERVER_FD)
		_exit(1);
	execlp("nvidia-cuda-mps-server", "nvidia-cuda-mps-server", NULL);
	_exit(1);
}

static struct server *start(uid_t uid)
{
	struct server *server = control.servers;
	int pair[2];
	while (server->pid && server < control.servers + MAX_SERVERS - 1)
		server++;
	if (server->pid || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return NULL;
	pid_t pid = fork();
	if (!pid)
		become_server(uid, pair[1]);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return NULL;
	}
	*server = (struct server){ .pid = pid, .uid = uid, .fd = pair[0], .limits = control.defaults };
	control_log("Starting new server %d for user %u", (int)pid, (unsigned int)uid);
	return server;
}

void server_stop(struct server *server, const char *how)
{
	server->stopping = 1;
	mps_send_fd(server->fd, how, -1);
}

static void close_peer(int index)
{
	close(control.peers[index].fd);
	control.peers[index] = control.peers[--control.peer_count];
}

/* Clients that waited for a server that could not start lose their connection. */
static void server_gone(struct server *server)
{
	int status = 0;
	waitpid(server->pid, &status, 0);
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	control_log("Server %d exited with status %d", (int)server->pid, code);
	control.failed |= code != 0;
	for (int i = control.peer_count - 1; i >= 0 && !server->ready; i--)
		if (control.peers[i].kind == PEER_CLIENT && (control.multi_user || control.peers[i].uid == server->uid))
			close_peer(i);
	close(server->fd);
	server->pid = 0;
}

/* 0 for a message that does not report a state: the answer to a question. */
static int report(struct server *server, const char *text)
{
	if (!strcmp(text, "ready")) {
		server->ready = 1;
		control_log("NEW SERVER %d: Ready", (int)server->pid);
	} else if (!strcmp(text, "fault") || !strcmp(text, "active")) {
		server->faulted = !strcmp(text, "fault");
		control_log("Server %d: %s", (int)server->pid, server->faulted ? "FAULT" : "ACTIVE");
	} else {
		return 0;
	}
	return 1;
}

void server_message(struct server *server)
{
	char text[MPS_LINE];
	int fd;
	if (mps_receive_fd(server->fd, text, sizeof text, &fd) < 0) {
		server_gone(server);
		return;
	}
	report(server, text);
}

/* A server that hangs does not answer in time. */
int server_ask(struct server *server, const char *question, char *answer, size_t room)
{
	struct pollfd waiting = { server->fd, POLLIN, 0 };
	int fd;
	if (!server->ready || mps_send_fd(server->fd, question, -1))
		return -1;
	do {
		if (poll(&waiting, 1, 2000) != 1 || mps_receive_fd(server->fd, answer, room, &fd) < 0)
			return -1;
	} while (report(server, answer));
	return 0;
}

static void pass(struct peer *client, struct server *server)
{
	char text[MPS_LINE];
	int n = snprintf(text, sizeof text, "client %f ", server->limits.percentage);
	for (int i = 0; i < MPS_DEVICES; i++)
		if (server->limits.memory[i])
			n += snprintf(text + n, sizeof text - (size_t)n, "%d=%llu,", i, (unsigned long long)server->limits.memory[i]);
	mps_send_fd(server->fd, text, client->fd);
}

/* Provides a server of the user, for a client or start_server. On request, the server of another user exits when its clients have exited.
 * Returns 1 when the server exists. */
static int provide(uid_t uid, struct server **found)
{
	int others = 0;
	*found = NULL;
	for (int i = 0; i < MAX_SERVERS; i++) {
		struct server *server = &control.servers[i];
		if (!server->pid)
			continue;
		if (server->uid == uid && !server->stopping)
			*found = server;
		else if (!server->stopping && server->ready)
			server_stop(server, "shutdown");
		others += *found != server;
	}
	if (*found)
		return (*found)->ready;
	if (!others)
		*found = start(uid);
	return 0;
}

void servers_assign(void)
{
	struct server *server;
	for (int i = 0; i < control.peer_count && !control.quitting;) {
		struct peer *peer = &control.peers[i];
		if (peer->kind != PEER_CLIENT) {
			i++;
			continue;
		}
		if (!provide(control.multi_user ? geteuid() : peer->uid, &server)) {
			if (!peer->waits)
				control_log("NEW CLIENT %d from user %u: Server is not ready, push client to pending list", (int)peer->pid, (unsigned int)peer->uid);
			peer->waits = 1;
			return;
		}
		control_log("NEW CLIENT %d from user %u: Server already exists", (int)peer->pid, (unsigned int)peer->uid);
		pass(peer, server);
		close_peer(i);
	}
	if (control.start_wanted && !control.quitting) {
		provide(control.multi_user ? geteuid() : control.start_uid, &server);
		if (server)
			control.start_wanted = 0;
	}
}
