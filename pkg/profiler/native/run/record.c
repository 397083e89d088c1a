#include "record.h"

#include "note.h"
#include "range.h"
#include "recording.h"
#include "supervise.h"
#include "tool.h"

void record_begin(struct run *run)
{
	note_number(run, "ready", wall_clock() - run->started);
	note_add(run, "state", "Recording");
	range_await(run);
	watch_plan(run);
}

int64_t record_due(const struct run *run)
{
	int64_t due = stop_by(run);
	if (run->ending)
		return report_by(run);
	return run->watch == closed ? earlier(due, milliseconds() + second) : due;
}

// conclude notes the outcome of the report once nsys exited.
static void conclude(struct run *run, const char *lost)
{
	tool_over(run);
	note_number(run, "toolExit", code(run->tool_status));
	if (run->recording.range_awaited)
		note_failure(run, "RangeNotReached", "the process did not start the range", 0);
	else if (lost || !report_note(run))
		note_tool_failure(run, &run->log, "ReportLost", lost ? lost : "nsys exited without a report");
	else
		note_add(run, "state", "Finished");
}

// must_end returns whether the stand-in must exit.
static bool must_end(const struct run *run)
{
	return run->process_ended || run->recording.range_reported || stop_wanted() || milliseconds() >= stop_by(run);
}

void record_advance(struct run *run)
{
	if (!run->tool) {
		conclude(run, NULL);
		return;
	}
	if (!run->ending && must_end(run)) {
		run->ending = milliseconds();
		note_add(run, "state", "Ending");
		tool_finish(run);
	}
	if (run->ending && milliseconds() >= report_by(run))
		conclude(run, "nsys did not write the report in time");
}
