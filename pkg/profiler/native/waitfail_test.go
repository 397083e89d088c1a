package native

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// TestWait_ToolFails_WaitGoesOn: the answer contains the end of the tool's output, and the next recording is not affected.
func TestWait_ToolFails_WaitGoesOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holds           string
		states, message string
	}{
		"start fails": {"start-fails", "Starting Failed", "no luck "},
		"start hangs": {"start-hangs", "Starting Ending Failed", "nsys did not start the recording in time"},
		"stop fails":  {"stop-loses", "Starting Recording Ending Failed", "No report. "},
		"stop hangs":  {"stop-hangs", "Starting Recording Ending Failed", "nsys did not write the report in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withLimit(t, func(limit time.Duration) bool {
				w := inWait(t, func(p *runplan.Plan) { p.Ready, p.Report = limit, limit })
				release := w.holds(t, c.holds)
				id := w.sends(t, 1, session.Control{Verb: start})
				if strings.HasPrefix(c.holds, "stop") {
					w.answered(t, id, session.Begun)
					w.does(t, 2, stop, session.Failed)
				}
				failed := w.answered(t, id, session.Failed)
				w.reaches(t, session.Waiting)
				n := w.recorded(t, failed.Report)
				if failed.Message != c.message || n["state"] != c.states {
					t.Logf("%+v, %v", failed, n)
					return false
				}
				assert.Equal(t, "ReportLost", n["reason"])
				assert.Contains(t, n["message"], strings.TrimSpace(c.message))
				release()
				// The fake goes on recording if its stop was killed.
				if c.holds != "stop-hangs" {
					w.does(t, 3, start, session.Begun)
					w.does(t, 4, stop, session.Recorded)
				}
				assert.Equal(t, 6, w.ends(t))
				return true
			})
		})
	}
}

// TestWait_ToolNotStarted_FailedRecording: as for a process that is recorded from its start, and no session remains.
func TestWait_ToolNotStarted_FailedRecording(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*runplan.Plan)
		reason string
	}{
		"tool missing":     {func(p *runplan.Plan) { p.Tool = "/run/prism/tool/none" }, "ToolNotInstalled"},
		"tool exits":       {func(p *runplan.Plan) { p.Env = []string{"FAKE=exit"} }, "FellBackUnprofiled"},
		"tool is silent":   {func(p *runplan.Plan) { p.Env, p.Ready = []string{"FAKE=silent"}, time.Second }, "FellBackUnprofiled"},
		"killed meanwhile": {func(p *runplan.Plan) { p.Env = []string{"FAKE=killer"} }, "FellBackUnprofiled"},
	} {
		for _, closed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				box := newWaiting(t, func(p *runplan.Plan) {
					c.change(p)
					p.FailClosed = closed
				})
				box.Child = true
				_, output := box.run(t, box.script(t, "echo ran; exit 4")...)
				switch {
				case name == "killed meanwhile":
					assert.Equal(t, "status 0x9\n", output)
				case closed:
					assert.True(t, strings.HasSuffix(output, "status 0x7d00\n"), output)
					assert.NotContains(t, output, "ran")
				default:
					assert.Equal(t, "ran\nstatus 0x400\n", output)
				}
				n := box.one(t)
				assert.Equal(t, []string{"Starting Failed", c.reason}, []string{n["state"], n["reason"]})
				assert.Regexp(t, "^s[0-9]+-"+hex(t, n["started"])+"$", n["name"])
				sessions, err := filepath.Glob(filepath.Join(box.Results, "w*"))
				require.NoError(t, err)
				assert.Empty(t, sessions)
			})
		}
	}
}

// TestWait_ToolCollides_LaunchedAgain: with the same session.
func TestWait_ToolCollides_LaunchedAgain(t *testing.T) {
	t.Parallel()
	for _, fake := range []string{"collide", "half"} {
		w := inWait(t, func(p *runplan.Plan) { p.Env = []string{"FAKE=" + fake} })
		w.does(t, 1, start, session.Begun)
		assert.Equal(t, 6, w.ends(t))
		assert.Equal(t, finished, w.one(t)["state"])
	}
}

// TestWait_Slots_SessionTakesOne: whether it is recorded or not.
func TestWait_Slots_SessionTakesOne(t *testing.T) {
	t.Parallel()
	c := newWaiting(t, nil)
	program := strings.Join(c.script(t, goesOn), " ")
	w := c.starts(t, c.outer(t, program+" & until grep -qs Waiting /run/prism/results/w*/note; do sleep 0.01; done; sh -c 'exit 3' profiled; wait $!")...)
	until(t, "another process must be noted", func() bool { return len(w.notes(t)) == 1 })
	assert.Equal(t, 6, w.ends(t))
	assert.Equal(t, "SlotsTaken", w.one(t)["reason"])
}

// TestWait_StoreFull_WaitGoesOn: the file of the store ends a recording, and starts are refused while it exists.
func TestWait_StoreFull_WaitGoesOn(t *testing.T) {
	t.Parallel()
	w := inWait(t, nil)
	w.does(t, 1, start, session.Begun)
	full := filepath.Join(w.Plan, "stop")
	require.NoError(t, os.WriteFile(full, nil, 0o600))
	w.answered(t, uuid(1), session.Recorded)
	w.does(t, 2, start, session.StoreFull)
	assert.Equal(t, session.Waiting, w.state(t))
	require.NoError(t, os.Remove(full))
	w.does(t, 3, start, session.Begun)
	assert.Equal(t, 6, w.ends(t))

	c := newWaiting(t, nil)
	require.NoError(t, os.WriteFile(filepath.Join(c.Plan, "stop"), nil, 0o600))
	w = c.starts(t, c.script(t, goesOn)...)
	w.does(t, 1, start, session.StoreFull)
	assert.Equal(t, 6, w.ends(t))
}

// TestWait_OtherFiles_Ignored: commands of other sessions, such as an earlier one of a restarted container, and files that no plugin writes.
func TestWait_OtherFiles_Ignored(t *testing.T) {
	t.Parallel()
	w := inWait(t, nil)
	raw, err := session.Control{ID: uuid(1), Verb: start}.Encode()
	require.NoError(t, err)
	w.writes(t, "w1-0123456789abcdef", raw)
	for _, content := range []string{"", "\n", "id=x\n", "id=" + uuid(1), strings.Repeat("x=y\n", 200) + "id=" + uuid(1) + "\n"} {
		w.writes(t, w.name, []byte(content))
	}
	w.does(t, 2, stop, session.NotRecording)
	w.writes(t, w.name, []byte("id="+uuid(3)+"\nverb=Record\n"))
	assert.Equal(t, "prism-run does not support the command", w.answered(t, uuid(3), session.Failed).Message)
	w.does(t, 4, start, session.Begun)
	require.NoError(t, os.Remove(filepath.Join(w.Plan, session.ControlFolder, w.name)))
	w.does(t, 5, stop, session.Recorded)
	require.NoError(t, os.Remove(filepath.Join(w.Plan, session.ControlFolder, w.name)))
	raw, err = session.Control{ID: uuid(4), Verb: start}.Encode()
	require.NoError(t, err)
	w.writes(t, w.name, raw)
	w.does(t, 6, stop, session.NotRecording)
	assert.Equal(t, 6, w.ends(t))
	assert.Len(t, w.notes(t), 1, "a command is carried out once")
}

// TestWait_NoControlFolder_LooksEverySecond: as without an inotify instance.
func TestWait_NoControlFolder_LooksEverySecond(t *testing.T) {
	t.Parallel()
	c := newWaiting(t, nil)
	folder := filepath.Join(c.Plan, session.ControlFolder)
	require.NoError(t, os.Remove(folder))
	w := c.starts(t, c.script(t, goesOn)...)
	assert.Zero(t, w.watches(t))
	require.NoError(t, os.Mkdir(folder, 0o755))
	w.does(t, 1, start, session.Begun)
	w.does(t, 2, stop, session.Recorded)
	assert.Equal(t, 6, w.ends(t))
}

// watches returns the number of inotify instances of prism-run and its children.
func (w *waiting) watches(t *testing.T) (count int) {
	t.Helper()
	pids, err := exec.CommandContext(t.Context(), "pgrep", "--ns", itoa(w.command.Process.Pid), "--nslist", "pid", "").Output()
	require.NoError(t, err)
	for _, pid := range strings.Fields(string(pids)) {
		files, _ := filepath.Glob("/proc/" + pid + "/fd/*")
		for _, file := range files {
			if target, _ := os.Readlink(file); strings.Contains(target, "inotify") {
				count++
			}
		}
	}
	return count
}

// TestWait_Commands_OneInotifyInstance: a user has few of them.
func TestWait_Commands_OneInotifyInstance(t *testing.T) {
	t.Parallel()
	w := inWait(t, nil)
	assert.Equal(t, 1, w.watches(t))
	w.does(t, 1, start, session.Begun)
	assert.Equal(t, 1, w.watches(t))
	w.does(t, 2, stop, session.Recorded)
	assert.Equal(t, 1, w.watches(t))
	assert.Equal(t, 6, w.ends(t))
}

// TestWait_Answers_LastEightByRename: the answer to a command that is not over stays.
func TestWait_Answers_LastEightByRename(t *testing.T) {
	t.Parallel()
	w := inWait(t, nil)
	id := w.does(t, 0, start, session.Begun).ID
	var before os.FileInfo
	for n := 1; n <= 10; n++ {
		w.does(t, n, start, session.AlreadyRecording)
		info, err := os.Stat(w.file(session.AnswersFile))
		require.NoError(t, err)
		assert.False(t, before != nil && os.SameFile(before, info))
		before = info
	}
	assert.Len(t, w.answers(t), session.KeptAnswers)
	assert.Equal(t, id, w.answers(t)[0].ID)
	assert.Equal(t, uuid(4), w.answers(t)[1].ID)
	assert.Equal(t, uuid(10), w.answers(t)[session.KeptAnswers-1].ID)
	assert.Less(t, before.Size(), int64(session.MaxAnswers))
	assert.Equal(t, 6, w.ends(t))
	assert.Equal(t, session.Recorded, w.outcome(t, id).Outcome)
}

// TestWait_ToolKilled_RecordingEndedAndSessionOver: no recording starts without the tool beside the process.
func TestWait_ToolKilled_RecordingEndedAndSessionOver(t *testing.T) {
	t.Parallel()
	const kills = `pkill -KILL -P $PPID -f 'nsys launch'; `
	for name, records := range map[string]bool{"waiting": false, "recording": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newWaiting(t, nil)
			w := c.starts(t, c.script(t, "until [ -e /run/work/now ]; do sleep 0.01; done; "+kills+goesOn)...)
			if records {
				w.does(t, 1, start, session.Begun)
			}
			require.NoError(t, os.WriteFile(filepath.Join(w.Work, "now"), nil, 0o600))
			until(t, "the session must be over", func() bool { return !w.locked(t) })
			if records {
				assert.Equal(t, finished, w.one(t)["state"])
				assert.Equal(t, session.Recorded, w.outcome(t, uuid(1)).Outcome)
			} else {
				assert.Empty(t, w.notes(t))
			}
			w.sends(t, 2, session.Control{Verb: start})
			assert.Equal(t, 6, w.ends(t))
			assert.NotContains(t, w.commands(t)[min(1, len(w.commands(t))):], "start")
		})
	}
}

// TestWait_ToolKilledBeforeStart_NotStarted: nsys would begin a session that records no program.
func TestWait_ToolKilledBeforeStart_NotStarted(t *testing.T) {
	t.Parallel()
	w := inWaitForLock(t, `pkill -KILL -P $PPID -f 'nsys launch'; touch /run/work/free; `)
	id := w.sends(t, 1, session.Control{Verb: start})
	w.reaches(t, session.Starting)
	w.holds(t, "now")
	w.answered(t, id, session.Failed)
	until(t, "the session must be over", func() bool { return !w.locked(t) })
	assert.Empty(t, w.commandLines(t))
	assert.Equal(t, 6, w.ends(t))
	assert.Empty(t, w.notes(t))
}

// inWaitForLock returns a process that waits while another one holds the lock for starts of nsys, until the file "free" exists. It runs a
// script once the file "now" exists.
func inWaitForLock(t *testing.T, script string) *waiting {
	t.Helper()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("needs flock")
	}
	c := newWaiting(t, nil)
	w := c.starts(t, c.script(t, `until [ -e /run/work/lock ]; do sleep 0.01; done
flock /dev/shm sh -c 'touch /run/work/locked; until [ -e /run/work/free ]; do sleep 0.01; done' &
until [ -e /run/work/now ]; do sleep 0.01; done; `+script+goesOn)...)
	w.holds(t, "lock")
	until(t, "the lock must be held", func() bool { return exists(w.Work, "locked") })
	return w
}

// TestWait_SupervisorKilled_ReportComplete: as of a process that is recorded from its start.
func TestWait_SupervisorKilled_ReportComplete(t *testing.T) {
	t.Parallel()
	c := newWaiting(t, nil)
	program := strings.Join(c.script(t, "echo $PPID >/run/work/above; exec sleep 1000"), " ")
	w := c.starts(t, c.outer(t, program+` & until [ -e /run/work/down ]; do sleep 0.01; done; { kill -9 $(cat /run/work/above); wait $!; } 2>/dev/null
while [ ! -e /run/prism/results/s*/report.qdstrm ]; do sleep 0.01; done`)...)
	w.does(t, 1, start, session.Begun)
	assert.Zero(t, w.ends(t))
	assert.False(t, w.locked(t))
}

// TestWait_WithoutRights_Recorded: as a user, and with a read-only root.
func TestWait_WithoutRights_Recorded(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("needs setpriv")
	}
	c := newWaiting(t, nil)
	c.ReadOnly = true
	require.NoError(t, os.Chmod(c.Work, 0o777))
	w := c.starts(t, append([]string{"setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "--no-new-privs"}, c.script(t, goesOn)...)...)
	w.does(t, 1, start, session.Begun)
	w.does(t, 2, stop, session.Recorded)
	w.does(t, 3, start, session.Begun)
	assert.Equal(t, 6, w.ends(t))
}

// TestWait_OtherStarts_Waits: a recording also starts while no other process of the pod starts nsys.
func TestWait_OtherStarts_Waits(t *testing.T) {
	t.Parallel()
	w := inWaitForLock(t, "")
	id := w.sends(t, 1, session.Control{Verb: start})
	w.reaches(t, session.Starting)
	assert.Empty(t, w.commandLines(t))
	end := w.sends(t, 2, session.Control{Verb: stop})
	w.answered(t, id, session.Cancelled)
	w.answered(t, end, session.NotRecording)
	w.sends(t, 3, session.Control{Verb: start})
	w.reaches(t, session.Starting)
	w.holds(t, "free")
	w.holds(t, "now")
	w.answered(t, uuid(3), session.Begun)
	assert.Equal(t, 6, w.ends(t))
}
