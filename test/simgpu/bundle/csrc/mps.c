/* The transport of MPS: see mps.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mps.h"

int mps_path(char *path, size_t room, const char *name)
{
	const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
	int length = snprintf(path, room, "%s/%s", directory && *directory ? directory : "/tmp/nvidia-mps", name);
	return length < 0 || (size_t)length >= room;
}

int mps_connect(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (mps_path(address.sun_path, sizeof address.sun_path, name))
		return -1;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	int failed;
	do
		failed = connect(fd, (struct sockaddr *)&address, sizeof address);
	while (failed && errno == EINTR);
	if (!failed)
		return fd;
	close(fd);
	return -1;
}

int mps_read_line(int fd, char *line, size_t room)
{
	size_t length = 0;
	while (length + 1 < room) {
		ssize_t k = read(fd, line + length, 1);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -1;
		if (line[length] == '\n')
			break;
		length++;
	}
	line[length] = 0;
	return (int)length;
}

int mps_send(int fd, const char *bytes, size_t n)
{
	while (n) {
		ssize_t k = send(fd, bytes, n, MSG_NOSIGNAL);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -1;
		bytes += k;
		n -= (size_t)k;
	}
	return 0;
}

union control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

int mps_send_fd(int fd, const char *text, int passed)
{
	union control control = { .room = { 0 } };
	struct iovec part = { (void *)text, strlen(text) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	if (passed >= 0) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof control.room;
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof passed);
		memcpy(CMSG_DATA(&control.header), &passed, sizeof passed);
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -1 : 0;
}

int mps_receive_fd(int fd, char *text, size_t room, int *passed)
{
	union control control = { .room = { 0 } };
	struct iovec part = { text, room - 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room };
	ssize_t k;
	do
		k = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	while (k < 0 && errno == EINTR);
	if (k <= 0)
		return -1;
	text[k] = 0;
	*passed = -1;
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(passed, CMSG_DATA(header), sizeof *passed);
	return (int)k;
}
