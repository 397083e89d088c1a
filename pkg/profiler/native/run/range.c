#include "range.h"

#include "note.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static const char option[] = "--capture-range", reached[] = "ange started", reported[] = "Generated:";

bool range_wanted(const struct run *run)
{
	for (size_t i = 0; i < run->plan.switches.count; i++) {
		const char *item = run->plan.switches.items[i];
		// Not --capture-range-end, which configures the end of the range.
		if (!strncmp(item, option, sizeof option - 1) && (item[sizeof option - 1] == '=' || !item[sizeof option - 1]))
			return true;
	}
	return false;
}

void range_await(struct run *run)
{
	if (!range_wanted(run) || run->recording.range_reached)
		return;
	run->recording.range_awaited = true;
	note_add(run, "reason", "RangeNotReached");
}

// words returns whether a character completes the text.
static bool words(struct run *run, const char *text, char next)
{
	run->recording.range_matched = next == text[run->recording.range_matched] ? run->recording.range_matched + 1 : next == text[0];
	if (text[run->recording.range_matched])
		return false;
	run->recording.range_matched = 0;
	return true;
}

void range_seen(struct run *run, const char *output, size_t size)
{
	if (run->recording.range_reported || !range_wanted(run))
		return;
	for (size_t i = 0; i < size; i++) {
		if (run->recording.range_reached) {
			run->recording.range_reported = run->recording.range_reported || words(run, reported, output[i]);
		} else if (words(run, reached, output[i])) {
			run->recording.range_reached = true;
			if (run->recording.range_awaited)
				note_add(run, "reason", run->context.several ? "SeveralProfiles" : "");
			run->recording.range_awaited = false;
		}
	}
}

int range_output(int ends[2])
{
	int unlocked = 0;
	struct termios mode;
	ends[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (ends[0] < 0)
		return -1;
	// By descriptor: the path of the other end may belong to another container.
	ends[1] = ioctl(ends[0], TIOCSPTLCK, &unlocked) < 0 ? -1 : ioctl(ends[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	bool raw = ends[1] >= 0 && tcgetattr(ends[1], &mode) == 0;
	if (raw) {
		cfmakeraw(&mode);
		raw = tcsetattr(ends[1], TCSANOW, &mode) == 0;
	}
	if (!raw) {
		int failed = errno;
		if ((ends[1] >= 0 && close(ends[1]) < 0) | (close(ends[0]) < 0))
			failed = errno;
		errno = failed;
		return -1;
	}
	return 0;
}
