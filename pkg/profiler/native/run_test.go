package native

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
)

const finished = "Starting Recording Ending Finished"

func TestRun_Script_ReportAndExitCode(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	code, output := c.run(t, c.script(t, `echo "$GIVEN $LD_PRELOAD $PRISM_PROFILED $0 $1"; umask; exit 7`)...)
	assert.Equal(t, 7, code)
	assert.Equal(t, "by-nsys libm.so.6 1 /run/work/profiled.sh \n0022\n", output)
	n := c.one(t)
	assert.Equal(t, finished, n["state"])
	assert.Equal(t, "7", n["exit"])
	assert.Equal(t, "0", n["toolExit"])
	assert.Equal(t, "dash_pod-a", n["file"])
	assert.Equal(t, "dash", n["process"])
	assert.Equal(t, []string{"1", "pod-a", "ns", "main"}, []string{n["version"], n["pod"], n["namespace"], n["container"]})
	reports, err := filepath.Glob(filepath.Join(c.Results, "s*", "*"))
	require.NoError(t, err)
	var names []string
	for _, report := range reports {
		names = append(names, filepath.Base(report))
	}
	assert.Equal(t, []string{"note", "nsys.log", "report.qdstrm", "tmp"}, names)
}

// TestRun_Tool_OwnFilesOnly: nsys inherits no open files of the process, but sees the process under its name: nsys 2022.4.2 lists the
// processes at its start, and a report contains no names of other processes.
func TestRun_Tool_OwnFilesOnly(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	const inherits = `exec 7</etc/passwd; umask 0; exec sh -c 'umask; echo $(ls /proc/self/fd)' `
	code, output := c.run(t, c.outer(t, inherits+"profiled")...)
	assert.Zero(t, code)
	_, without := c.run(t, c.outer(t, inherits+"other")...)
	assert.Equal(t, without, output)
	assert.Regexp(t, "^0000\n.* 7\n", output)
	logs, err := filepath.Glob(filepath.Join(c.Results, "s*", "nsys.log"))
	require.NoError(t, err)
	require.Len(t, logs, 1)
	raw, err := os.ReadFile(logs[0])
	require.NoError(t, err)
	assert.Equal(t, "umask 0077, files 0 1 2 3 \nprograms 1\n", string(raw))
}

func TestRun_NoMatch_Untouched(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	code, output := c.run(t, "sh", "-c", "echo $GIVEN $PRISM_PROFILED; exit 3")
	assert.Equal(t, 3, code)
	assert.Equal(t, "\n", output)
	assert.Empty(t, c.notes(t))
}

// saidByTool are the messages of notes with the end of nsys's output: its log is deleted with the session.
var saidByTool = map[string]string{
	"tool exits":          "nsys exited before it started its program; its output ends with: umask 0077, files 0 1 2 3 programs 1 no luck",
	"tool without report": "nsys exited without a report; its output ends with: umask 0077, files 0 1 2 3 programs 1 An error occurred. No report.",
}

// TestRun_NoProfiler_ProcessRunsOnce: for any failure of the tool, the process runs once.
func TestRun_NoProfiler_ProcessRunsOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change        func(*runplan.Plan)
		state, reason string
	}{
		"tool missing": {func(p *runplan.Plan) { p.Tool = "/run/prism/tool/none" }, "Starting Failed", "ToolNotInstalled"},
		"tool exits":   {func(p *runplan.Plan) { p.Env = []string{"FAKE=exit"} }, "Starting Failed", "FellBackUnprofiled"},
		"tool is silent": {
			func(p *runplan.Plan) { p.Env, p.Ready = []string{"FAKE=silent"}, time.Second }, "Starting Failed", "FellBackUnprofiled",
		},
		"tool without report": {func(p *runplan.Plan) { p.Env = []string{"FAKE=lost"} }, "Starting Recording Ending Failed", "ReportLost"},
		"tool does not end": {
			func(p *runplan.Plan) { p.Env, p.Report = []string{"FAKE=stuck"}, time.Second }, "Starting Recording Ending Failed", "ReportLost",
		},
		"no folder for reports": {func(p *runplan.Plan) { p.Dir = "/proc/none" }, "Starting Failed", "FellBackUnprofiled"},
		"tool talks":            {func(p *runplan.Plan) { p.Env = []string{"FAKE=talk"} }, finished, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := newContainer(t, c.change)
			box.Child = true
			code, output := box.run(t, box.script(t, "echo once >>/run/work/ran; echo $(ps -A -o args | grep -c '[s]leep'); exit 4")...)
			assert.Zero(t, code)
			assert.Equal(t, "0\nstatus 0x400\n", output)
			ran, err := os.ReadFile(filepath.Join(box.Work, "ran"))
			require.NoError(t, err)
			assert.Equal(t, "once\n", string(ran))
			n := box.one(t)
			assert.Equal(t, c.state, n["state"])
			assert.Equal(t, c.reason, n["reason"])
			if said := saidByTool[name]; said != "" {
				assert.Equal(t, said, n["message"])
			}
			logs, _ := filepath.Glob(filepath.Join(box.Results, "s*", "nsys.log"))
			for _, log := range logs {
				info, err := os.Stat(log)
				require.NoError(t, err)
				assert.LessOrEqual(t, info.Size(), int64(64<<10))
			}
		})
	}
}

// TestRun_VariablesCutShort_OfTheNextStart: variables from a failed start are not used for the next start.
func TestRun_VariablesCutShort_OfTheNextStart(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.Env = []string{"FAKE=half"} })
	code, output := c.run(t, c.script(t, "echo $GIVEN$HALF; exit 6")...)
	assert.Equal(t, 6, code)
	assert.Equal(t, "by-nsys\n", output)
	assert.Equal(t, finished, c.one(t)["state"])
}

// TestRun_WaitingFails_ProcessGoesOn: poll refuses more files than a process may open, and any process of the same user can lower that
// limit.
func TestRun_WaitingFails_ProcessGoesOn(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	code, output := c.run(t, c.script(t, `trap : USR1; prlimit --pid $PPID --nofile=2:2; kill -USR1 $PPID; sleep 0.2; echo ran; exit 6`)...)
	assert.Equal(t, 6, code, output)
	assert.Equal(t, "ran\n", output)
}

// TestRun_Range_Noted: a recording that waits for a range reports so, until nsys reports the range.
func TestRun_Range_Noted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, state, reason string }{
		"reached": {
			"until grep -q RangeNotReached /run/prism/results/s*/note; do sleep 0.01; done; touch /run/work/begun; while ! grep -q '^reason=$' /run/prism/results/s*/note; do sleep 0.01; done",
			finished, "RangeNotReached ",
		},
		"not reached": {"true", "Starting Recording Ending Failed", "RangeNotReached RangeNotReached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := newContainer(t, func(p *runplan.Plan) { p.Env, p.Switches = []string{"FAKE=range"}, []string{"--capture-range=nvtx"} })
			code, _ := box.run(t, box.script(t, "until grep -q Recording /run/prism/results/s*/note; do sleep 0.01; done; "+c.script+"; exit 6")...)
			assert.Equal(t, 6, code)
			n := box.one(t)
			assert.Equal(t, c.state, n["state"])
			assert.Equal(t, c.reason, n["reason"])
		})
	}
}

func TestRun_FailClosed_ProcessFails(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.Tool, p.FailClosed = "/run/prism/tool/none", true })
	code, output := c.run(t, c.script(t, "echo ran")...)
	assert.Equal(t, 125, code)
	assert.Equal(t, "prism-run: /run/prism/tool/none: No such file or directory\n", output)
}

// TestRun_Killed_SameSignal: the parent sees the signal, which is not sent to a container's first process.
func TestRun_Killed_SameSignal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, first, below string }{
		"SIGKILL": {"kill -9 $$", "137", "status 0x9\n"},
		"SIGSEGV": {"ulimit -c 0; kill -11 $$", "139", "status 0xb\n"},
		"SIGTERM": {"kill -15 $$", "143", "status 0xf\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, change := range kinds {
				box := newContainer(t, change)
				box.Child = true
				_, output := box.run(t, box.script(t, c.script)...)
				assert.Equal(t, c.below, output, kind)
				box.over(t, kind)
			}
		})
	}
}

// terminated runs a server that handles SIGTERM, as the container's first process, and sends it SIGTERM.
func (c *container) terminated(t *testing.T) note {
	t.Helper()
	var output bytes.Buffer
	command := c.command(t, c.script(t, `trap 'echo bye; exit 5' TERM; echo up >/run/work/up; while :; do sleep 0.01; done`)...)
	command.Stdout, command.Stderr = &output, &output
	require.NoError(t, command.Start())
	until(t, "the server is up", func() bool { return exists(c.Work, "up") })
	require.NoError(t, command.Process.Signal(syscall.SIGTERM))
	require.Error(t, command.Wait())
	assert.Equal(t, 5, command.ProcessState.ExitCode())
	assert.Equal(t, "bye\n", output.String())
	return c.one(t)
}

func TestRun_Term_Forwarded(t *testing.T) {
	t.Parallel()
	assert.Equal(t, finished, newContainer(t, nil).terminated(t)["state"])
}

// TestRun_TermToolDoesNotEnd_ProcessExits: after SIGTERM the time for nsys is shorter than the usual time for a report.
func TestRun_TermToolDoesNotEnd_ProcessExits(t *testing.T) {
	t.Parallel()
	n := newContainer(t, func(p *runplan.Plan) { p.Env, p.Term = []string{"FAKE=stuck"}, time.Second }).terminated(t)
	assert.Equal(t, "Starting Recording Ending Failed", n["state"])
	assert.Equal(t, "ReportLost", n["reason"])
	assert.Contains(t, n["message"], "nsys did not write the report in time")
}

// TestRun_TermNotHandled_FirstProcessGoesOn: as without the profiler; the report is still written.
func TestRun_TermNotHandled_FirstProcessGoesOn(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.Stop = time.Second })
	command := c.command(t, c.script(t, `echo up >/run/work/up; while [ ! -e /run/work/down ]; do sleep 0.01; done; exit 6`)...)
	require.NoError(t, command.Start())
	until(t, "the process is up", func() bool { return exists(c.Work, "up") })
	require.NoError(t, command.Process.Signal(syscall.SIGTERM))
	until(t, "the report is there", func() bool { return c.one(t)["state"] == finished })
	assert.Empty(t, c.one(t)["exit"])
	require.NoError(t, os.WriteFile(filepath.Join(c.Work, "down"), nil, 0o600))
	require.Error(t, command.Wait())
	assert.Equal(t, 6, command.ProcessState.ExitCode())
}

func TestRun_Stop_ReportWhileProcessRuns(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.FailClosed = true })
	command := c.command(t, c.script(t, `echo up >/run/work/up; while [ ! -e /run/work/down ]; do sleep 0.01; done; exit 6`)...)
	require.NoError(t, command.Start())
	until(t, "the process is up", func() bool { return exists(c.Work, "up") })
	require.NoError(t, os.WriteFile(filepath.Join(c.Plan, "stop"), nil, 0o600))
	until(t, "the report is there", func() bool { return c.one(t)["state"] == finished })
	require.NoError(t, os.WriteFile(filepath.Join(c.Work, "down"), nil, 0o600))
	require.Error(t, command.Wait())
	assert.Equal(t, 6, command.ProcessState.ExitCode())

	code, _ := c.run(t, c.script(t, "exit 8")...)
	assert.Equal(t, 8, code, "another process")
	reasons := []string{c.notes(t)[0]["reason"], c.notes(t)[1]["reason"]}
	assert.ElementsMatch(t, []string{"", "Stopped"}, reasons)
}

// TestRun_Slots_AtMostMaxSessions: the others run without the profiler.
func TestRun_Slots_AtMostMaxSessions(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.MaxSessions, p.FailClosed = 2, true })
	code, output := c.run(t, c.outer(t, `
for i in 1 2 3 4; do
	sh -c 'echo "$0 $GIVEN" >>/run/work/ran; while [ ! -e /run/work/down ]; do sleep 0.01; done' profiled$i &
done
while [ "$(cat /run/work/ran 2>/dev/null | wc -l)" != 4 ]; do sleep 0.01; done
touch /run/work/down; wait`)...)
	assert.Zero(t, code, output)
	raw, err := os.ReadFile(filepath.Join(c.Work, "ran"))
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(raw), "by-nsys"), string(raw))
	states := map[string]int{}
	for _, n := range c.notes(t) {
		states[n["state"]+n["reason"]]++
	}
	assert.Equal(t, map[string]int{finished: 2, "Starting FailedSlotsTaken": 2}, states)
}

// TestRun_Nested_OneSession: nsys handles children of a profiled process, even if the process clears the environment.
func TestRun_Nested_OneSession(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.MaxSessions = 4 })
	code, output := c.run(t, c.script(t, `sh -c 'echo a$PRISM_PROFILED' profiled; env -i sh -c 'echo b$PRISM_PROFILED $$; exit 9' profiled`)...)
	assert.Equal(t, 9, code)
	assert.Regexp(t, `^a1\nbpid:(\d+) \d+\n$`, output)
	assert.Len(t, c.notes(t), 1)
}

// TestRun_ExecSession_Untouched: for a process that "kubectl exec" or a probe starts.
func TestRun_ExecSession_Untouched(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nsenter"); err != nil {
		t.Skip("needs nsenter")
	}
	// The kernel writes the process's name unescaped into the file from which its parent is read.
	const renamed = `printf 'a) S 1 (b' >/proc/$$/comm; `
	for name, is := range map[string]struct {
		sessions     bool
		before, want string
	}{
		"left out": {false, "", "\n"}, "left out below an odd name": {false, renamed, "\n"}, "profiled": {true, "", "by-nsys\n"},
		"profiled below an odd name": {true, renamed, "by-nsys\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, func(p *runplan.Plan) { p.ExecSessions = is.sessions })
			first := c.command(t, "sh", "-c", "echo up >/run/work/up; while [ ! -e /run/work/down ]; do sleep 0.01; done")
			c.outer(t, is.before+`sh -c 'echo "$GIVEN"' profiled; true`)
			require.NoError(t, first.Start())
			until(t, "the container is up", func() bool { return exists(c.Work, "up") })
			output, err := exec.CommandContext(t.Context(), "nsenter", "-t", itoa(first.Process.Pid), "-m", "-p",
				"sh", "/run/work/outer.sh").CombinedOutput()
			require.NoError(t, err)
			assert.Equal(t, is.want, string(output))
			require.NoError(t, os.WriteFile(filepath.Join(c.Work, "down"), nil, 0o600))
			require.NoError(t, first.Wait())
			if !is.sessions {
				assert.Empty(t, c.notes(t))
			}
		})
	}
}

// TestRun_FirstProcessGone_Untouched: in a pod with the host's pid namespace, a probe may be executed while the container ends.
func TestRun_FirstProcessGone_Untouched(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]struct {
		first int
		want  string
	}{"gone": {1 << 22, "\n"}, "alive": {1, "by-nsys\n"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, nil)
			c.First = is.first
			code, output := c.run(t, c.script(t, `sh -c 'echo "$GIVEN"' profiled`)...)
			assert.Zero(t, code)
			assert.Equal(t, is.want, output)
		})
	}
}

// TestRun_SupervisorKilled_ProcessKilled: as if the process itself had been killed; nsys completes the recording.
func TestRun_SupervisorKilled_ProcessKilled(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	script := c.script(t, `until grep -q Recording /run/prism/results/s*/note; do sleep 0.01; done; echo $$ $PPID >/run/work/pids; exec sleep 1000`)
	code, output := c.run(t, c.outer(t, strings.Join(script, " ")+` &
while [ ! -s /run/work/pids ]; do sleep 0.01; done; read process above </run/work/pids; kill -9 $above; wait $!; echo $?
while grep -qs '^State:.[^ZX]' /proc/$process/status; do sleep 0.01; done
while [ ! -e /run/prism/results/s*/report.qdstrm ]; do sleep 0.01; done`)...)
	assert.Equal(t, "137\n", strings.TrimPrefix(output, "Killed\n"), "dash writes it where it waited already")
	assert.Zero(t, code, output)
	assert.Equal(t, "Starting Recording", c.one(t)["state"])
}

func TestRun_LaunchedProcess_Profiled(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	c.Preload = "libm.so.6\n"
	code, output := c.run(t, c.outer(t, `LD_PRELOAD=libdl.so.2 sh -c 'echo "$GIVEN $LD_PRELOAD"; exit 2' profiled & wait $!`)...)
	assert.Equal(t, 2, code)
	assert.Equal(t, "by-nsys libm.so.6:libdl.so.2\n", output)
	assert.Equal(t, finished, c.one(t)["state"])
}

func TestRun_WithoutRights_Profiled(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("needs setpriv")
	}
	for name, args := range map[string][]string{
		"user":                  {"setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "--no-new-privs"},
		"root, no capabilities": {"setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, nil)
			c.ReadOnly = true
			code, output := c.run(t, append(args, c.script(t, `echo "$GIVEN"; exit 7`)...)...)
			assert.Equal(t, 7, code)
			assert.Equal(t, "by-nsys\n", output)
			assert.Equal(t, finished, c.one(t)["state"])
		})
	}
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func itoa(i int) string { return strconv.Itoa(i) }
