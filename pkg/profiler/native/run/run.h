// The state of a matched process and its recording.
#ifndef PRISM_RUN_RUN_H
#define PRISM_RUN_RUN_H

#include "plan.h"

#include <signal.h>
#include <sys/types.h>

// closed stands for a descriptor that is not open.
enum { closed = -1 };

// MAX_VARIABLES limits the environment of the stand-in, in bytes.
#define MAX_VARIABLES (256 << 10)

// FOLDER_NAME is the size of a buffer for the name of a folder in the results.
#define FOLDER_NAME 64

// note is a file of "key=value" lines for the plugin.
struct note {
	int file;
	size_t size;
};

// log is the output of a command of nsys.
struct log {
	int from, file; // the pipe of the command, and the file to which it is copied
	size_t size;
	char said[192]; // its end, without line breaks
	size_t said_size;
};

// recording is one report of the process, and its folder.
struct recording {
	char name[FOLDER_NAME];
	int64_t started; // nanoseconds since 1970
	char file[256]; // the report's name, without extension
	char output[4096]; // the report's path, without extension
	int folder;
	struct note note;

	// For a recording that starts with a range: whether that is noted, whether the range was entered, whether its report is written, and
	// the length of the message of nsys that was read.
	bool range_awaited, range_reached, range_reported;
	int range_matched;
};

struct run {
	char *executable, **arguments; // of the process
	struct plan plan;
	struct context context;

	// The inherited state of the process that prism-run changes for itself.
	bool taken_over;
	sigset_t mask;
	bool children_ignored;
	int subreaper;
	mode_t umask;

	char session[FOLDER_NAME]; // the folder's name, which marks the session's processes
	int64_t started; // nanoseconds since 1970
	int64_t start_by; // milliseconds: when the process starts, with nsys or without
	struct note session_note; // of a process that waits
	struct recording recording; // the only one, or the current one of a process that waits
	struct log log; // of nsys beside the process

	// Descriptors, closed or close-on-exec.
	int folder; // of the session
	int slot;
	int up, down; // from and to the stand-in
	int signals, watch;
	int go; // to the child that waits to execute the process
	int asks; // to the witness

	pid_t witness; // 0: none, or exited
	uint32_t asked; // number of questions so far
	uint64_t repeated; // signals that the witness may have merged, as bits
	uint32_t repeated_by; // the sender of the last of them

	struct strings variables; // that nsys passed to the stand-in
	pid_t process, tool; // 0: none, or exited
	bool ready, process_ended, exit_noted;
	int process_status, tool_status; // once they exited

	// The end of recording; times are in milliseconds, 0: not yet.
	int64_t term; // SIGTERM was received
	int64_t ending; // nsys began to write a report
	bool done; // nsys and all of its processes exited

	// Another command of nsys for a process that waits, at most one at a time.
	pid_t command;
	int command_status;
	struct log command_log;
};

#endif
