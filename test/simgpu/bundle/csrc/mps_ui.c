/* nvidia-cuda-mps-control without options: commands from stdin. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mps_control.h"

/* Prints a reply: 0 at its end, 1 without an end, 2 with the exit status of the daemon. */
static int print_reply(int fd, int *status)
{
	char byte;
	while (read(fd, &byte, 1) == 1) {
		if (!byte)
			return 0;
		if (byte == MPS_EXIT) {
			*status = read(fd, &byte, 1) == 1 ? byte : 1;
			return 2;
		}
		putchar(byte);
	}
	return 1;
}

int user_interface(void)
{
	char line[MPS_LINE];
	int status = 0, end = 0, fd = mps_connect("control_privileged");
	if (fd < 0)
		fd = mps_connect("control");
	if (fd < 0 || mps_send(fd, "UI\n", 3)) {
		fprintf(stderr, "Cannot find MPS control daemon process\n");
		return 1;
	}
	while (!end && fgets(line, sizeof line - 1, stdin)) {
		line[strcspn(line, "\n")] = 0;
		strcat(line, "\n");
		if (mps_send(fd, line, strlen(line)))
			return 1;
		end = print_reply(fd, &status);
		fflush(stdout);
	}
	close(fd);
	return end == 1 ? 1 : status;
}
