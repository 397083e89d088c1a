package native

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// TestWait_StartStopAgain_RecordingEach: each recording has a folder like those of processes that are recorded from their start.
func TestWait_StartStopAgain_RecordingEach(t *testing.T) {
	t.Parallel()
	w := inWait(t, nil)
	n, size := w.note(t), w.size(t)
	assert.Equal(t, []string{"1", "pod-a", "ns", "main", "dash", "1", "/run/prism/tool/target-linux-x64/nsys"},
		[]string{n["version"], n["pod"], n["namespace"], n["container"], n["process"], n["pid"], n["tool"]})
	assert.Equal(t, "w1-"+hex(t, n["started"]), w.name)
	assert.True(t, w.locked(t))
	assert.Empty(t, w.answers(t))

	begun := w.does(t, 1, start, session.Begun)
	assert.Equal(t, session.Recording, w.state(t))
	assert.False(t, isLocked(t, fmt.Sprintf("/proc/%d/root/dev/shm", w.command.Process.Pid)), "other processes may start nsys")
	assert.NotNil(t, begun.Begun)
	assert.Nil(t, begun.Ended)
	assert.Equal(t, "Starting Recording", w.recorded(t, begun.Report)["state"])
	stopped := w.does(t, 2, stop, session.Recorded)
	assert.Equal(t, begun.Report, stopped.Report)
	w.reaches(t, session.Waiting)
	first := w.outcome(t, uuid(1))
	assert.Equal(t, session.Recorded, first.Outcome)
	assert.False(t, isLocked(t, filepath.Join(w.Results, begun.Report, "note")))
	assert.False(t, first.Ended.Before(*first.Begun))

	again := w.does(t, 3, start, session.Begun)
	assert.NotEqual(t, begun.Report, again.Report)
	w.does(t, 4, stop, session.Recorded)
	w.reaches(t, session.Waiting)
	assert.Equal(t, size, w.size(t), "states are written in place")
	assert.Equal(t, 6, w.ends(t))
	assert.False(t, w.locked(t))
	require.Len(t, w.notes(t), 2)
	for _, answer := range []session.Answer{begun, again} {
		n := w.recorded(t, answer.Report)
		assert.Equal(t, []string{finished, "dash_pod-a", "0", "dash"}, []string{n["state"], n["file"], n["toolExit"], n["process"]})
		assert.Regexp(t, "^s1-"+hex(t, n["started"])+"$", answer.Report)
		assert.Equal(t, []string{"note", "nsys.log", "report.qdstrm"}, w.files(t, answer.Report))
	}
	assert.Equal(t, []string{"start", "stop", "start", "stop"}, w.commands(t))
}

// size returns the size of the session's note.
func (w *waiting) size(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(w.file("note"))
	require.NoError(t, err)
	return info.Size()
}

// hex returns a number of nanoseconds as in the names of folders.
func hex(t *testing.T, nanoseconds string) string {
	t.Helper()
	number, err := strconv.ParseInt(nanoseconds, 10, 64)
	require.NoError(t, err)
	return fmt.Sprintf("%016x", number)
}

// files returns the names of a recording's files.
func (w *waiting) files(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.Results, folder))
	require.NoError(t, err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// commands returns the commands of the tool other than the one beside the process.
func (w *waiting) commands(t *testing.T) (all []string) {
	t.Helper()
	for _, line := range w.commandLines(t) {
		all = append(all, strings.Fields(line)[0])
	}
	return all
}

// TestWait_Cancel_ReportDeleted: and the node's store drops what is Cancelled.
func TestWait_Cancel_ReportDeleted(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"in the results": "", "in its container": "/run/work/out"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := inWait(t, func(p *runplan.Plan) { p.Dir = dir })
			report := w.does(t, 1, start, session.Begun).Report
			w.does(t, 2, cancel, session.Cancelled)
			assert.Equal(t, session.Cancelled, w.outcome(t, uuid(1)).Outcome)
			assert.Equal(t, "Starting Recording Ending Cancelled", w.recorded(t, report)["state"])
			assert.Equal(t, []string{"note"}, w.files(t, report))
			out, _ := filepath.Glob(filepath.Join(w.Work, "out", "*"))
			assert.Empty(t, out)
			w.does(t, 3, start, session.Begun)
			assert.Equal(t, 6, w.ends(t))
		})
	}
}

// TestWait_ReportInContainer_AsFromStart: also if a name is taken.
func TestWait_ReportInContainer_AsFromStart(t *testing.T) {
	t.Parallel()
	w := inWait(t, func(p *runplan.Plan) { p.Dir = "/run/work/out" })
	first, second := w.does(t, 1, start, session.Begun).Report, ""
	w.does(t, 2, stop, session.Recorded)
	second = w.does(t, 3, start, session.Begun).Report
	assert.Equal(t, 6, w.ends(t))
	for _, report := range []string{first, second} {
		n := w.recorded(t, report)
		paths := strings.Fields(n["path"])
		assert.FileExists(t, filepath.Join(w.Work, strings.TrimPrefix(paths[len(paths)-1], "/run/work/")))
		assert.Equal(t, "7", n["size"])
	}
	assert.NotEqual(t, w.recorded(t, first)["path"], w.recorded(t, second)["path"])
}

// TestWait_Times_NotEarlier: recordings begin at the time of their command, and end at it.
func TestWait_Times_NotEarlier(t *testing.T) {
	t.Parallel()
	w := inWait(t, nil)
	at := time.Now().Add(300 * time.Millisecond)
	id := w.sends(t, 1, session.Control{Verb: start, At: at, Until: at.Add(time.Hour)})
	begun := w.answered(t, id, session.Begun)
	assert.False(t, begun.Begun.Before(at))
	w.does(t, 2, stop, session.Recorded)

	const tooLate = "the recording was to end before it could begin"
	for n := 3; ; n++ {
		end := time.Now().Add(time.Duration(n-1) * time.Second)
		id = w.sends(t, n, session.Control{Verb: start, Until: end})
		until(t, "the recording must end without a command", func() bool { return w.outcome(t, id).Outcome.Final() && w.outcome(t, id).Outcome != "" })
		answer := w.outcome(t, id)
		if answer.Message == tooLate {
			continue // for this machine
		}
		assert.Equal(t, session.Recorded, answer.Outcome)
		assert.False(t, answer.Ended.Before(end))
		assert.Equal(t, finished, w.recorded(t, answer.Report)["state"])
		break
	}

	late := w.sends(t, 40, session.Control{Verb: start, Until: time.Now().Add(-time.Second)})
	assert.Equal(t, tooLate, w.answered(t, late, session.Failed).Message)
	w.does(t, 41, start, session.Begun)
	id = w.sends(t, 42, session.Control{Verb: stop, At: time.Now().Add(300 * time.Millisecond)})
	w.answered(t, id, session.Recorded)
	assert.Equal(t, 6, w.ends(t))
}

// TestWait_NotNow_Refused: commands that do not fit the state change nothing.
func TestWait_NotNow_Refused(t *testing.T) {
	t.Parallel()
	w := inWait(t, nil)
	w.does(t, 1, stop, session.NotRecording)
	w.does(t, 2, cancel, session.NotRecording)
	release := w.holds(t, "start-waits")
	id := w.sends(t, 3, session.Control{Verb: start})
	w.reaches(t, session.Starting)
	w.does(t, 4, start, session.AlreadyRecording)
	release()
	w.answered(t, id, session.Begun)
	w.does(t, 5, start, session.AlreadyRecording)
	release = w.holds(t, "stop-waits")
	end := w.sends(t, 6, session.Control{Verb: stop})
	w.reaches(t, session.Ending)
	w.does(t, 7, start, session.AlreadyRecording)
	w.does(t, 8, cancel, session.NotRecording)
	assert.Equal(t, session.Begun, w.outcome(t, id).Outcome)
	release()
	w.answered(t, end, session.Recorded)
	w.answered(t, id, session.Recorded)
	var order []string
	for _, answer := range w.answers(t) {
		order = append(order, strings.TrimLeft(answer.ID[24:], "0"))
	}
	assert.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7", "8"}, order, "of the commands")
	assert.Equal(t, 6, w.ends(t))
	assert.Len(t, w.notes(t), 1)
}

// TestWait_EndWhileStarting_OnceBegun: a command that ends the recording is carried out when it has begun.
func TestWait_EndWhileStarting_OnceBegun(t *testing.T) {
	t.Parallel()
	for verb, outcome := range map[session.Verb]session.Outcome{stop: session.Recorded, cancel: session.Cancelled} {
		t.Run(string(verb), func(t *testing.T) {
			t.Parallel()
			w := inWait(t, nil)
			release := w.holds(t, "start-waits")
			id := w.sends(t, 1, session.Control{Verb: start})
			until(t, "the tool must start", func() bool { return len(w.commandLines(t)) == 1 })
			end := w.takes(t, 2, session.Control{Verb: verb})
			w.does(t, 3, verb, session.NotRecording)
			release()
			w.answered(t, id, outcome)
			w.answered(t, end, outcome)
			assert.Equal(t, 6, w.ends(t))
		})
	}
}

// TestWait_StartNotDue_Replaced: by any other command.
func TestWait_StartNotDue_Replaced(t *testing.T) {
	t.Parallel()
	w := inWait(t, nil)
	later := session.Control{Verb: start, At: time.Now().Add(time.Hour)}
	for i, verb := range []session.Verb{stop, cancel} {
		id := w.takes(t, 10*i, later)
		w.does(t, 10*i+1, verb, session.NotRecording)
		w.answered(t, id, session.Cancelled)
	}
	first := w.takes(t, 30, later)
	second := w.takes(t, 31, later)
	assert.Equal(t, session.Cancelled, w.outcome(t, first).Outcome)
	w.does(t, 32, start, session.Begun)
	assert.Equal(t, session.Cancelled, w.outcome(t, second).Outcome)
	w.does(t, 33, stop, session.Recorded)
	assert.Equal(t, []string{"start", "stop"}, w.commands(t))
	last := w.takes(t, 34, later)
	assert.Equal(t, 6, w.ends(t))
	assert.Equal(t, session.ProcessEnded, w.outcome(t, last).Outcome)

	w = inWait(t, nil)
	replaced := w.takes(t, 1, later)
	w.does(t, 2, stop, session.NotRecording)
	assert.Equal(t, 6, w.ends(t))
	assert.Equal(t, session.Cancelled, w.outcome(t, replaced).Outcome)
}

// TestWait_ProcessEnds_RecordingKept: in each state; the process's exit is the same.
func TestWait_ProcessEnds_RecordingKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holds   string
		state   session.State
		outcome session.Outcome
	}{
		"recording": {"", session.Recording, session.Recorded}, "starting": {"start-waits", session.Starting, session.Recorded},
		"ending": {"stop-waits", session.Ending, session.Recorded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := inWait(t, nil)
			release := func() {}
			if c.holds != "" {
				release = w.holds(t, c.holds)
			}
			id := w.sends(t, 1, session.Control{Verb: start})
			if c.state != session.Starting {
				w.answered(t, id, session.Begun)
			} else {
				until(t, "the tool must start", func() bool { return len(w.commandLines(t)) == 1 })
			}
			if c.state == session.Ending {
				w.sends(t, 2, session.Control{Verb: stop})
			}
			w.reaches(t, c.state)
			require.NoError(t, os.WriteFile(filepath.Join(w.Work, "down"), nil, 0o600))
			until(t, "the exit must be noted", func() bool { return w.one(t)["exit"] == "6" })
			release()
			assert.Equal(t, 6, w.exits(t))
			answer := w.outcome(t, id)
			assert.Equal(t, c.outcome, answer.Outcome)
			assert.Equal(t, finished, w.recorded(t, answer.Report)["state"])
			if c.state == session.Ending {
				assert.Equal(t, c.outcome, w.outcome(t, uuid(2)).Outcome)
			}
		})
	}
}

// TestWait_ProcessEndsWaiting_NothingKeepsIt: even if the tool does not exit.
func TestWait_ProcessEndsWaiting_NothingKeepsIt(t *testing.T) {
	t.Parallel()
	for name, environment := range map[string][]string{"tool exits": nil, "tool does not exit": {"FAKE=stuck"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := inWait(t, func(p *runplan.Plan) { p.Env = environment })
			assert.Equal(t, 6, w.ends(t))
			assert.Empty(t, w.notes(t))
			assert.False(t, w.locked(t))
		})
	}
}

// TestWait_Term_AsFromStart: SIGTERM ends a recording, and a process that waits exits at once.
func TestWait_Term_AsFromStart(t *testing.T) {
	t.Parallel()
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		w := inWait(t, nil)
		require.NoError(t, w.command.Process.Signal(syscall.SIGTERM))
		assert.Equal(t, 5, w.exits(t))
		assert.Empty(t, w.notes(t))
	})
	t.Run("recording", func(t *testing.T) {
		t.Parallel()
		w := inWait(t, nil)
		w.does(t, 1, start, session.Begun)
		require.NoError(t, w.command.Process.Signal(syscall.SIGTERM))
		assert.Equal(t, 5, w.exits(t))
		assert.Equal(t, finished, w.one(t)["state"])
		assert.Equal(t, "5", w.one(t)["exit"])
	})
	t.Run("tool does not end", func(t *testing.T) {
		t.Parallel()
		w := inWait(t, func(p *runplan.Plan) { p.Env, p.Term = []string{"FAKE=stuck"}, time.Second })
		w.does(t, 1, start, session.Begun)
		require.NoError(t, w.command.Process.Signal(syscall.SIGTERM))
		assert.Equal(t, 5, w.exits(t))
		assert.Equal(t, "Starting Recording Ending Failed", w.one(t)["state"])
		assert.Equal(t, session.Failed, w.outcome(t, uuid(1)).Outcome)
	})
	t.Run("process goes on", func(t *testing.T) {
		t.Parallel()
		c := newWaiting(t, func(p *runplan.Plan) { p.Stop = time.Second })
		w := c.starts(t, c.script(t, `touch /run/work/up; while [ ! -e /run/work/down ]; do sleep 0.01; done; exit 6`)...)
		w.does(t, 1, start, session.Begun)
		require.NoError(t, w.command.Process.Signal(syscall.SIGTERM))
		w.answered(t, uuid(1), session.Recorded)
		w.reaches(t, session.Waiting)
		assert.Empty(t, w.one(t)["exit"])
		assert.Equal(t, 6, w.ends(t))
	})
}

// commandLines returns the command lines of the tool other than the one beside the process.
func (w *waiting) commandLines(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(w.Work, "commands"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// TestWait_Switches_OfTheCommand: a command replaces the values of switches that the plan has.
func TestWait_Switches_OfTheCommand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan    []string
		command session.Control
		want    string
	}{
		"of the plan": {
			[]string{"--sampling-period=1", "--backtrace=fp"}, session.Control{}, "--sampling-period=1 --backtrace=fp",
		},
		"period": {
			[]string{"--sampling-period=1", "--backtrace=fp"}, session.Control{SamplingFrequencyHz: 8000, Backtrace: "LBR"},
			"--sampling-period=125000 --backtrace=lbr",
		},
		"frequency":   {[]string{"--sampling-frequency=1"}, session.Control{SamplingFrequencyHz: 8000, Backtrace: "None"}, "--sampling-frequency=8000"},
		"no sampling": {[]string{"--sample=none"}, session.Control{SamplingFrequencyHz: 8000, Backtrace: "DWARF"}, "--sample=none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := inWait(t, func(p *runplan.Plan) { p.StartSwitches = c.plan })
			c.command.Verb = start
			report := w.answered(t, w.sends(t, 1, c.command), session.Begun).Report
			assert.Equal(t, []string{"start --session=" + w.name + " " + c.want + " -o /run/prism/results/" + report + "/report"}, w.commandLines(t))
			switches, err := os.ReadFile(filepath.Join(w.Work, "switches"))
			require.NoError(t, err)
			assert.Regexp(t, `^--trace=osrt --session-new=`+regexp.QuoteMeta(w.name)+` /run/prism/programs/prism-run --stand-in `, string(switches))
			assert.Equal(t, 6, w.ends(t))
		})
	}
}
