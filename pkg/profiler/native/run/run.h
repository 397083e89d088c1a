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

	char session[64]; // the folder's name
	int64_t started; // nanoseconds since 1970
	int64_t start_by; // milliseconds: when the process starts, with nsys or without
	char file[256]; // the report's name, without extension
	char output[4096]; // the report's path, without extension
	size_t note_size, log_size;
	char said[192]; // the end of the output of nsys, without line breaks
	size_t said_size;

	// Descriptors, closed or close-on-exec.
	int folder, note, log;
	int slot;
	int up, down; // from and to the stand-in
	int tool_output, signals, watch;
	int go; // to the child that waits to execute the process
	int asks; // to the witness

	pid_t witness; // 0: none, or exited
	uint32_t asked; // number of questions so far
	uint64_t repeated; // signals that the witness may have merged, as bits
	uint32_t repeated_by; // the sender of the last of them

	// For a recording that starts with a range: whether that is noted, whether the range was entered, whether its report is written, and
	// the length of the message of nsys that was read.
	bool range_awaited, range_reached, range_reported;
	int range_matched;

	struct strings variables; // that nsys passed to the stand-in
	pid_t process, tool; // 0: none, or exited
	bool ready, process_ended;
	int process_status, tool_status; // once they exited
};

#endif
