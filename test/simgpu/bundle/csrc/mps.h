/* How MPS clients, control daemon and servers talk.
 *
 * A connection to the control daemon begins with a line: "UI" or "CLIENT".
 * UI: one line for each command; the reply is text that ends with a zero
 * byte, or, when the daemon exits because of quit, MPS_EXIT and the status.
 * CLIENT: the daemon passes the connection to the user's server, which sends
 * one line: "READY key percentage limits", "FULL" or "FAULT". The connection
 * stays open as long as the client is one.
 * A client sends a byte after a fatal fault.
 * Server: a SOCK_SEQPACKET pair, at MPS_SERVER_FD in the server. "ready",
 * "fault" and "active" come unasked. */
#ifndef SIMGPU_MPS_H
#define SIMGPU_MPS_H

#include <stddef.h>
#include <sys/types.h>

#define MPS_EXIT 4
#define MPS_SERVER_FD 3
#define MPS_LINE 4096
#define MPS_DEVICES 64

/* The path of a file in the pipe directory; not 0 when it is too long. */
int mps_path(char *path, size_t room, const char *name);

/* Connects to a socket in the pipe directory; -1 when it cannot. */
int mps_connect(const char *name);

/* Reads up to a newline, which is not kept; its length, or -1 at the end. */
int mps_read_line(int fd, char *line, size_t room);

int mps_send(int fd, const char *bytes, size_t n);

/* A message of a server's pair, with a descriptor unless it is -1. */
int mps_send_fd(int fd, const char *text, int passed);
int mps_receive_fd(int fd, char *text, size_t room, int *passed);

#endif
