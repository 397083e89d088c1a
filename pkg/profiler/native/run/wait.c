#include "wait.h"

#include "answers.h"
#include "log.h"
#include "note.h"
#include "recording.h"
#include "session.h"
#include "startlock.h"
#include "supervise.h"
#include "tool.h"

#include <errno.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	start_seconds = 15, // until the command that starts a recording is killed
	exit_seconds = 2, // until nsys is killed when the process exits and is not recorded
	million = 1000000,
};

// session is the state of the session and of its recording; times are in milliseconds.
static struct {
	enum state { waiting, starting, recording, ending } state;
	bool planned;
	struct control plan; // the command whose time has not come, if planned
	struct control start; // the command that started the recording
	char end[COMMAND_ID]; // the command that ends it, if any
	bool cancel; // that command discards the report
	const char *lost; // why the recording has not begun, if it failed
	int64_t ended; // nanoseconds since 1970
	bool running; // a command of nsys runs, or its exit is not processed yet
	int lock; // for starts of nsys
	int64_t lock_by, start_by; // when it is started without the lock, and killed
	bool finishing; // nsys beside the process exits
} session = {.lock = closed};

// set_state changes the state in the note. Answers are written after it: a client that has read one may send the next command.
static void set_state(struct run *run, enum state state)
{
	static const char *const names[] = {"Waiting", "Starting", "Recording", "Ending"};
	session.state = state;
	session_state(run, names[state]);
}

void wait_begin(struct run *run)
{
	set_state(run, waiting);
	watch_plan(run);
	if (run->watch != closed && inotify_add_watch(run->watch, CONTROL_FOLDER, IN_MOVED_TO | IN_ONLYDIR) < 0)
		drop(&run->watch);
}

// answer sets the outcome of a command.
static void answer(const struct run *run, const char *id, const char *outcome, const char *message)
{
	struct answer *answer = answer_of(id);
	answer->outcome = outcome;
	answer_message(answer, message, strlen(message));
	answers_write(run);
}

// answer_recording sets the outcome of a command for the current recording; the message is the end of the output of nsys.
static void answer_recording(const struct run *run, const char *id, const char *outcome, const struct log *log, const char *lost)
{
	struct answer *answer = answer_of(id);
	bool failed = !strcmp(outcome, "Failed");
	answer->outcome = outcome;
	answer->ended = session.lost ? 0 : session.ended;
	if (run->recording.folder != closed)
		strcpy(answer->report, run->recording.name);
	if (failed && log->said_size)
		answer_message(answer, log->said, log->said_size);
	else if (failed)
		answer_message(answer, lost, strlen(lost));
}

// recording_over notes and answers the outcome of the recording: its report, unless that is lost.
static void recording_over(struct run *run, const struct log *log, const char *lost)
{
	const char *outcome = "Recorded";
	bool begun = !session.lost;
	lost = begun ? lost : session.lost;
	if (!begun || session.cancel)
		recording_discard(run);
	if (begun && session.cancel) {
		outcome = "Cancelled";
		note_add(run, "state", outcome);
	} else if (lost || !report_note(run)) {
		outcome = "Failed";
		lost = lost ? lost : "nsys wrote no report";
		note_tool_failure(run, log, "ReportLost", lost);
	} else {
		note_add(run, "state", "Finished");
	}
	answer_recording(run, session.start.id, outcome, log, lost);
	if (*session.end && begun)
		answer_recording(run, session.end, outcome, log, lost);
	else if (*session.end)
		answer_of(session.end)->outcome = "NotRecording";
	log_close(&run->command_log);
	recording_end(run);
	session.lost = NULL;
	session.cancel = false;
	session.end[0] = 0;
	set_state(run, waiting);
	answers_write(run);
}

static int start_arguments(const struct run *run, struct strings *to)
{
	int failed = strings_add(to, "start") | strings_add(to, text_joined("--session=", run->session));
	for (size_t i = 0; i < run->plan.start_switches.count; i++)
		failed |= strings_add(to, control_switch(&session.start, run->plan.start_switches.items[i]));
	return failed | strings_add(to, "-o") | strings_add(to, run->recording.output);
}

static int stop_arguments(const struct run *run, struct strings *to)
{
	return strings_add(to, "stop") | strings_add(to, text_joined("--session=", run->session));
}

static int64_t start_limit(const struct run *run)
{
	return earlier(start_seconds, run->plan.ready) * second;
}

// start_begin waits for the lock before it starts the recording.
static void start_begin(struct run *run, const struct control *command)
{
	int64_t now = milliseconds();
	session.start = *command;
	session.start_by = now + start_limit(run);
	session.lock_by = now + start_limit(run) / 2;
	run->command_log.said_size = 0;
	if (run->term && now >= run->term + run->plan.term * second)
		run->term = 0; // the process did not exit
	set_state(run, starting);
}

// start_run starts the command that starts the recording.
static int start_run(struct run *run)
{
	int64_t now = wall_clock();
	int folder = folder_make('s', now, run->recording.name);
	if (folder < 0 || recording_begin(run, now, folder) < 0 || recording_prepare(run) < 0 || log_open(&run->command_log, folder) < 0)
		return -1;
	return command_start(run, start_arguments);
}

// start_not ends a start that was not carried out.
static void start_not(struct run *run, const char *outcome, const char *message)
{
	drop(&session.lock);
	set_state(run, waiting);
	answer(run, session.start.id, outcome, message);
	if (*session.end)
		answer(run, session.end, "NotRecording", "");
	session.end[0] = 0;
	session.cancel = false;
}

// start_try starts the recording when no other process of the pod starts nsys, or half of the time is over. nsys would start another
// session if the one beside the process has exited.
static void start_try(struct run *run)
{
	if (run->process_ended || *session.end) {
		start_not(run, run->process_ended ? "ProcessEnded" : "Cancelled", "");
		return;
	}
	if (!run->tool) {
		start_not(run, "Failed", "nsys exited");
		return;
	}
	if (!lock_try(&session.lock) && milliseconds() < session.lock_by)
		return;
	session.running = start_run(run) == 0;
	if (session.running)
		return;
	session.lost = strerror(errno);
	drop(&session.lock);
	recording_over(run, &run->command_log, NULL);
}

// stop_run starts the command that ends the recording.
static void stop_run(struct run *run)
{
	run->ending = milliseconds();
	session.ended = wall_clock();
	note_add(run, "state", "Ending");
	set_state(run, ending);
	session.running = command_start(run, stop_arguments) == 0;
	if (!session.running)
		recording_over(run, &run->command_log, strerror(errno));
}

// start_over processes the exit of the command that starts the recording, or that it was killed: then nsys may record nevertheless.
static void start_over(struct run *run, bool killed)
{
	struct answer *answer = answer_of(session.start.id);
	drop(&session.lock);
	if (!killed && code(run->command_status) == 0) {
		answer->begun = wall_clock();
		answer->outcome = "Recording";
		strcpy(answer->report, run->recording.name);
		note_number(run, "ready", answer->begun - run->recording.started);
		note_add(run, "state", "Recording");
		set_state(run, recording);
		answers_write(run);
		return;
	}
	session.lost = killed ? "nsys did not start the recording in time" : "nsys did not start the recording";
	if (!killed || !run->tool) {
		recording_over(run, &run->command_log, NULL);
		return;
	}
	answer_recording(run, session.start.id, "Failed", &run->command_log, session.lost);
	answers_write(run);
	session.start_by = milliseconds() + start_limit(run);
	stop_run(run);
}

// command_by returns when the command of nsys is killed.
static int64_t command_by(const struct run *run)
{
	if (session.state != starting && !session.lost)
		return report_by(run);
	// A recording that did not begin does not keep the process's exit.
	return session.lost && run->process_ended ? 0 : earlier(session.start_by, term_by(run));
}

static void command_advance(struct run *run)
{
	bool late = run->command && milliseconds() >= command_by(run);
	if (run->command && !late)
		return;
	if (late)
		command_kill(run);
	log_copy(run, &run->command_log);
	log_end(&run->command_log);
	session.running = false;
	if (session.state == starting) {
		start_over(run, late);
		return;
	}
	note_number(run, "toolExit", code(run->command_status));
	if (session.lost)
		run->command_log.said_size = 0; // of a stop that was only to make sure
	recording_over(run, &run->command_log, late ? "nsys did not write the report in time" : NULL);
}

// refusal returns why a command is not carried out, or null.
static const char *refusal(const struct control *command)
{
	if (command->verb == verb_start)
		return session.state == waiting ? NULL : "AlreadyRecording";
	bool ends = (session.state == starting || session.state == recording) && !*session.end;
	return ends ? NULL : "NotRecording";
}

static void carry_out(struct run *run, const struct control *command)
{
	const char *refused = refusal(command);
	if (!refused && command->verb == verb_start && stop_wanted())
		refused = "StoreFull";
	if (refused) {
		answer(run, command->id, refused, "");
	} else if (command->verb != verb_start) {
		strcpy(session.end, command->id);
		session.cancel = command->verb == verb_cancel;
	} else if (command->until && command->until <= wall_clock()) {
		answer(run, command->id, "Failed", "the recording was to end before it could begin");
	} else {
		start_begin(run, command);
	}
}

// command_new processes a command that was not seen before. It replaces one whose time has not come.
static void command_new(struct run *run, const struct control *command, bool supported)
{
	answer_of(command->id);
	if (session.planned)
		answer(run, session.plan.id, "Cancelled", "");
	session.planned = false;
	if (!supported) {
		answer(run, command->id, "Failed", "prism-run does not support the command");
	} else if (refusal(command) || command->at <= wall_clock()) {
		carry_out(run, command);
	} else {
		session.plan = *command;
		session.planned = true;
	}
}

static void commands_take(struct run *run)
{
	struct control command;
	if (run->process_ended || !run->tool)
		return;
	int is = control_read(run->session, &command);
	if (is >= 0 && !answer_known(command.id))
		command_new(run, &command, is > 0);
	if (session.planned && session.plan.at <= wall_clock()) {
		session.planned = false;
		carry_out(run, &session.plan);
	}
}

// must_end returns whether the recording ends before the process, or nsys beside it exited: the recording is then not lost yet.
static bool must_end(const struct run *run)
{
	if (*session.end || !run->tool)
		return true;
	return !run->process_ended &&
	       ((session.start.until && wall_clock() >= session.start.until) || stop_wanted() || milliseconds() >= stop_by(run));
}

// finish makes nsys exit after the process: it writes the report of the recording.
static void finish(struct run *run)
{
	session.finishing = true;
	run->ending = milliseconds();
	if (session.state == recording) {
		session.ended = wall_clock();
		note_add(run, "state", "Ending");
		set_state(run, ending);
	}
	tool_finish(run);
}

static int64_t finish_by(const struct run *run)
{
	return session.state == ending ? report_by(run) : run->ending + exit_seconds * second;
}

// conclude ends the session: nsys exited, or is killed.
static void conclude(struct run *run, const char *lost)
{
	struct control command;
	const char *outcome = run->process_ended ? "ProcessEnded" : "Failed", *message = run->process_ended ? "" : "nsys exited";
	tool_over(run);
	if (session.state == ending) {
		note_number(run, "toolExit", code(run->tool_status));
		recording_over(run, &run->log, lost);
	}
	if (session.planned)
		answer(run, session.plan.id, outcome, message);
	if (control_read(run->session, &command) >= 0 && !answer_known(command.id))
		answer(run, command.id, outcome, message);
	note_close(&run->session_note);
	drop(&run->watch);
}

void wait_advance(struct run *run)
{
	commands_take(run);
	if (session.running)
		command_advance(run);
	else if (session.state == starting)
		start_try(run);
	if (!session.running && session.state == recording && !session.finishing && must_end(run))
		stop_run(run);
	if (session.running)
		return;
	if (!run->tool)
		conclude(run, NULL);
	else if (session.finishing && milliseconds() >= finish_by(run))
		conclude(run, "nsys did not write the report in time");
	else if (run->process_ended && !session.finishing)
		finish(run);
}

// by_wall_clock returns when to compare a time with the clock again, which may be set; 0 is never reached.
static int64_t by_wall_clock(int64_t at)
{
	return at ? milliseconds() + earlier((at - wall_clock()) / million + 1, second) : never;
}

int64_t wait_due(const struct run *run)
{
	int64_t due = never;
	if (run->watch == closed && !run->process_ended)
		due = milliseconds() + second;
	if (session.planned)
		due = earlier(due, by_wall_clock(session.plan.at));
	if (session.running)
		return earlier(due, command_by(run));
	if (session.finishing)
		return finish_by(run);
	if (session.state == starting)
		return milliseconds() + lock_pause;
	return session.state == recording ? earlier(due, earlier(stop_by(run), by_wall_clock(session.start.until))) : due;
}
