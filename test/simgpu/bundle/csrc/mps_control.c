/* nvidia-cuda-mps-control: the control daemon of MPS, and its user interface. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "mps_control.h"

struct control control = { .defaults = { .percentage = 100 } };

static FILE *log_file;

static long long now_ms(clockid_t id, struct timespec *t)
{
	clock_gettime(id, t);
	return t->tv_sec * 1000ll + t->tv_nsec / 1000000;
}

void control_log(const char *format, ...)
{
	struct timespec t;
	struct tm local;
	char date[64];
	va_list list;
	if (!log_file)
		return;
	now_ms(CLOCK_REALTIME, &t);
	localtime_r(&t.tv_sec, &local);
	strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
	fprintf(log_file, "[%s.%03ld Control %5d] ", date, t.tv_nsec / 1000000, (int)getpid());
	va_start(list, format);
	vfprintf(log_file, format, list);
	va_end(list);
	fputc('\n', log_file);
	fflush(log_file);
}

static int listen_at(const char *name, mode_t mode)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (mps_path(address.sun_path, sizeof address.sun_path, name))
		return -1;
	unlink(address.sun_path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || chmod(address.sun_path, mode) || listen(fd, 64))
		return -1;
	return fd;
}

static int lock_directory(void)
{
	char path[MPS_LINE];
	if (mps_path(path, sizeof path, "control_lock"))
		return -1;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0) {
		printf("Cannot access CUDA_MPS_PIPE_DIRECTORY=%s\n", path);
		return -1;
	}
	fchmod(fd, 0666);
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		printf("An instance of this daemon is already running\n");
		return -1;
	}
	return fd;
}

static void open_log(int foreground)
{
	const char *directory = getenv("CUDA_MPS_LOG_DIRECTORY");
	char path[MPS_LINE];
	if (foreground) {
		log_file = stdout;
		return;
	}
	snprintf(path, sizeof path, "%s/server.log", directory ? directory : "/var/log/nvidia-mps");
	FILE *server_log = fopen(path, "ae");
	if (server_log)
		fclose(server_log);
	snprintf(path, sizeof path, "%s/control.log", directory ? directory : "/var/log/nvidia-mps");
	log_file = fopen(path, "ae");
}

/* Files of the pipe directory beside the sockets. */
static void make_files(void)
{
	char path[MPS_LINE];
	if (!mps_path(path, sizeof path, "log")) {
		mkfifo(path, 0777);
		chmod(path, 0777);
	}
	if (SIMGPU_BRANCH < 550 || mps_path(path, sizeof path, "nvidia-cuda-mps-control.pid"))
		return;
	FILE *file = fopen(path, "we");
	if (file) {
		fprintf(file, "%d", (int)getpid());
		fclose(file);
		chmod(path, 0666);
	}
}

static void add_peer(int listener, int privileged)
{
	struct ucred credentials = { .pid = 0 };
	socklen_t size = sizeof credentials;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
	if (control.peer_count == MAX_PEERS || (privileged && credentials.uid && credentials.uid != geteuid())) {
		close(fd);
		return;
	}
	control.peers[control.peer_count++] = (struct peer){ .fd = fd, .pid = credentials.pid, .uid = credentials.uid, .privileged = privileged };
}

static void leave(int status)
{
	char end[2] = { MPS_EXIT, (char)status };
	control_log("Exit with status %d", status);
	for (int i = 0; i < control.peer_count; i++)
		if (control.peers[i].kind == PEER_UI && control.peers[i].privileged)
			mps_send(control.peers[i].fd, end, sizeof end);
	exit(status);
}

static void begin_quit(void)
{
	control.quitting = 1;
	for (int i = control.peer_count - 1; i >= 0; i--) {
		if (control.peers[i].kind != PEER_CLIENT)
			continue;
		close(control.peers[i].fd);
		control.peers[i] = control.peers[--control.peer_count];
	}
	for (int i = 0; i < MAX_SERVERS; i++)
		if (control.servers[i].pid)
			server_stop(&control.servers[i], "shutdown");
}

/* 0 when the peer is gone. */
static int serve_peer(struct peer *peer)
{
	char line[MPS_LINE], *text = NULL;
	size_t size = 0;
	if (mps_read_line(peer->fd, line, sizeof line) < 0)
		return 0;
	if (peer->kind == PEER_NEW) {
		peer->kind = !strcmp(line, "CLIENT") ? PEER_CLIENT : PEER_UI;
		control_log("%s", peer->kind == PEER_UI ? "NEW UI" : "NEW CLIENT");
		return peer->kind == PEER_UI || !control.quitting;
	}
	FILE *reply = open_memstream(&text, &size);
	if (!reply)
		return 0;
	int quits = command(peer, line, reply);
	fputc(0, reply);
	fclose(reply);
	int failed = !quits && mps_send(peer->fd, text, size);
	free(text);
	if (quits)
		begin_quit();
	return !failed;
}

static int poll_timeout(void)
{
	struct timespec t;
	if (!control.has_deadline)
		return -1;
	long long left = control.deadline - now_ms(CLOCK_MONOTONIC, &t);
	if (left > 0)
		return (int)left;
	control.has_deadline = 0;
	for (int i = 0; i < MAX_SERVERS; i++)
		if (control.servers[i].pid)
			server_stop(&control.servers[i], "force");
	return -1;
}

/* One round: everything that polled reports. Peers come last, from the end, since serving one may close others. */
static void round_of(int listener, int privileged)
{
	struct pollfd polled[2 + MAX_SERVERS + MAX_PEERS] = { { listener, POLLIN, 0 }, { privileged, POLLIN, 0 } };
	struct pollfd *servers = polled + 2, *peers = servers + MAX_SERVERS;
	int count = control.peer_count;
	for (int i = 0; i < MAX_SERVERS; i++)
		servers[i] = (struct pollfd){ control.servers[i].pid ? control.servers[i].fd : -1, POLLIN, 0 };
	for (int i = 0; i < count; i++)
		peers[i] = (struct pollfd){ control.peers[i].fd, POLLIN, 0 };
	if (poll(polled, (nfds_t)(2 + MAX_SERVERS + count), poll_timeout()) <= 0)
		return;
	for (int i = count - 1; i >= 0; i--) {
		if (!peers[i].revents || i >= control.peer_count || control.peers[i].fd != peers[i].fd || serve_peer(&control.peers[i]))
			continue;
		close(control.peers[i].fd);
		control.peers[i] = control.peers[--control.peer_count];
	}
	for (int i = 0; i < MAX_SERVERS; i++)
		if (servers[i].revents && control.servers[i].pid)
			server_message(&control.servers[i]);
	if (polled[0].revents)
		add_peer(listener, 0);
	if (polled[1].revents)
		add_peer(privileged, 1);
	servers_assign();
}

static int serve(void)
{
	char path[MPS_LINE];
	int listener = listen_at("control", 0666), privileged = listen_at("control_privileged", 0755);
	if (listener < 0 || privileged < 0)
		return 1;
	make_files();
	mps_path(path, sizeof path, "control");
	control_log("Starting control daemon using socket %s", path);
	while (!control.quitting || servers_running())
		round_of(listener, privileged);
	leave(control.failed);
	return 1;
}

static void read_environment(void)
{
	const char *percentage = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), *limits = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	double value = percentage ? strtod(percentage, NULL) : 0;
	unsigned int device;
	unsigned long long size;
	char unit;
	int used;
	if (value > 0 && value <= 100)
		control.defaults.percentage = value;
	for (; limits && sscanf(limits, "%u=%llu%c%n", &device, &size, &unit, &used) == 3; limits += used + (limits[used] == ','))
		if (device < MPS_DEVICES)
			control.defaults.memory[device] = size << (unit == 'G' ? 30 : 20);
}

/* The parent exits when the daemon listens, which the closed pipe shows. */
static int in_background(void)
{
	int ready[2];
	char byte;
	if (pipe2(ready, O_CLOEXEC))
		return 1;
	pid_t pid = fork();
	if (pid < 0)
		return 1;
	if (pid) {
		close(ready[1]);
		return read(ready[0], &byte, 1) == 1 ? 0 : 1;
	}
	setsid();
	int lock = lock_directory();
	fflush(stdout);
	if (lock < 0)
		_exit(1);
	open_log(0);
	if (freopen("/dev/null", "r", stdin) && freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr) && write(ready[1], "x", 1) == 1)
		return serve();
	_exit(1);
}

int main(int argc, char **argv)
{
	int foreground = 0, background = 0, unknown = 0;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-f"))
			foreground = 1;
		else if (!strcmp(argv[i], "-d"))
			background = 1;
		else if (!strcmp(argv[i], "-multiuser-server") && SIMGPU_BRANCH >= 570)
			control.multi_user = 1;
		else
			unknown = 1;
	}
	signal(SIGPIPE, SIG_IGN);
	umask(0);
	if (unknown || (!foreground && !background))
		return user_interface();
	read_environment();
	if (background)
		return in_background();
	if (lock_directory() < 0)
		return 1;
	open_log(1);
	return serve();
}
