/* nvidia-cuda-mps-server: owns the contexts on its user's GPUs, with one connection for each client. It outlives a control daemon that is
 * killed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mps.h"

#define FAULT_POLL 10 /* ms */
#define MAX_CLIENTS (SIMGPU_CUDA >= 13010 ? 60 : 48)

struct client {
	int fd;
	pid_t pid;
};

static struct client clients[MAX_CLIENTS];
static int client_count;
static int stopping, faulted;
static uint64_t key;
static void (*end_client)(uint32_t pid);
static int (*clients_faulted)(void);

static int take_gpus(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	int (*serve)(uint64_t) = library ? (int (*)(uint64_t))dlsym(library, "simgpu_mps_serve") : NULL;
	end_client = library ? (void (*)(uint32_t))dlsym(library, "simgpu_mps_end_client") : NULL;
	clients_faulted = library ? (int (*)(void))dlsym(library, "simgpu_mps_faulted") : NULL;
	return serve && end_client && clients_faulted && getrandom(&key, sizeof key, 0) == sizeof key ? serve(key) : -1;
}

/* The state is FAULT from a fatal fault until all clients that it reached have exited. */
static void renew_state(void)
{
	int now = clients_faulted();
	if (now == faulted)
		return;
	faulted = now;
	mps_send_fd(MPS_SERVER_FD, faulted ? "fault" : "active", -1);
}

static pid_t pid_of(int fd)
{
	struct ucred credentials = { .pid = 0 };
	socklen_t size = sizeof credentials;
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
	return credentials.pid;
}

/* settings are the percentage and the limits of this client. */
static void add_client(int fd, const char *settings)
{
	char line[MPS_LINE];
	if (faulted || client_count == MAX_CLIENTS) {
		mps_send(fd, faulted ? "FAULT\n" : "FULL\n", faulted ? 6 : 5);
		close(fd);
		return;
	}
	int n = snprintf(line, sizeof line, "READY %llx %s\n", (unsigned long long)key, settings);
	if (mps_send(fd, line, (size_t)n)) {
		close(fd);
		return;
	}
	clients[client_count++] = (struct client){ fd, pid_of(fd) };
}

static void list_clients(void)
{
	char text[MPS_LINE];
	int n = snprintf(text, sizeof text, "clients");
	for (int i = 0; i < client_count; i++)
		n += snprintf(text + n, sizeof text - (size_t)n, " %d", (int)clients[i].pid);
	mps_send_fd(MPS_SERVER_FD, text, -1);
}

static void terminate(pid_t pid)
{
	int known = 0;
	for (int i = 0; i < client_count; i++)
		known |= clients[i].pid == pid;
	if (known)
		end_client((uint32_t)pid);
	mps_send_fd(MPS_SERVER_FD, known ? "done" : "unknown", -1);
}

/* 0 when the control daemon is gone. */
static int serve_control(void)
{
	char text[MPS_LINE];
	int fd;
	if (mps_receive_fd(MPS_SERVER_FD, text, sizeof text, &fd) < 0)
		return 0;
	if (!strncmp(text, "client ", 7))
		add_client(fd, text + 7);
	else if (!strcmp(text, "list"))
		list_clients();
	else if (!strncmp(text, "terminate ", 10))
		terminate((pid_t)atoi(text + 10));
	else if (!strcmp(text, "shutdown"))
		stopping = 1;
	else if (!strcmp(text, "force"))
		exit(0);
	return 1;
}

static void drop_gone(const struct pollfd *polled)
{
	char byte;
	for (int i = client_count - 1; i >= 0; i--) {
		if (!polled[i].revents)
			continue;
		if (read(clients[i].fd, &byte, 1) > 0) {
			renew_state();
			continue;
		}
		close(clients[i].fd);
		clients[i] = clients[--client_count];
	}
}

int main(void)
{
	int has_control = 1;
	struct pollfd polled[MAX_CLIENTS + 1];
	if (fcntl(MPS_SERVER_FD, F_GETFD) < 0) {
		printf("nvidia-cuda-mps-server is launched by the MPS control daemon.\n");
		return 1;
	}
	if (take_gpus())
		return 1;
	mps_send_fd(MPS_SERVER_FD, "ready", -1);
	while (!stopping || client_count) {
		int count = client_count;
		for (int i = 0; i < count; i++)
			polled[i] = (struct pollfd){ clients[i].fd, POLLIN, 0 };
		polled[count] = (struct pollfd){ has_control ? MPS_SERVER_FD : -1, POLLIN, 0 };
		if (poll(polled, (nfds_t)count + 1, faulted ? FAULT_POLL : -1) < 0) {
			if (errno == EINTR)
				continue;
			return 1;
		}
		drop_gone(polled);
		if (faulted)
			renew_state();
		if (polled[count].revents)
			has_control = serve_control();
	}
	return 0;
}
