package native

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// manually makes a process wait for commands.
func manually(p *runplan.Plan) {
	p.Manual, p.StartSwitches = true, []string{"--sample=process-tree", "--sampling-period=125000", "--backtrace=fp", "--cpuctxsw=none"}
}

// over checks that the only session, of a kind, ended as it should.
func (c *container) over(t testing.TB, kind string) {
	t.Helper()
	assert.Equal(t, 1, c.sessions(t))
	for _, n := range c.notes(t) {
		assert.Equal(t, finished, n["state"])
	}
	assert.Equal(t, kind == "waiting", len(c.notes(t)) == 0)
}

// waiting is a container whose first process waits for commands. It runs until the file "down" exists, or SIGTERM.
type waiting struct {
	*container
	command *exec.Cmd
	output  bytes.Buffer
	// name is the folder of the session.
	name string
}

// goesOn is the script of a process of waiting.
const goesOn = `trap 'exit 5' TERM; touch /run/work/up; while [ ! -e /run/work/down ]; do sleep 0.01; done; exit 6`

// newWaiting returns a container that may wait.
func newWaiting(t testing.TB, change func(*runplan.Plan)) *container {
	t.Helper()
	return newContainer(t, func(p *runplan.Plan) {
		manually(p)
		if change != nil {
			change(p)
		}
	})
}

// kinds are the kinds of sessions: for the process there is no difference.
var kinds = map[string]func(*runplan.Plan){"recorded": nil, "waiting": manually}

// sessions returns the number of sessions of any kind.
func (c *container) sessions(t testing.TB) int {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(c.Results, "[sw]*"))
	require.NoError(t, err)
	return len(folders)
}

// starts runs the process until it waits.
func (c *container) starts(t testing.TB, process ...string) *waiting {
	t.Helper()
	w := &waiting{container: c}
	w.command = c.command(t, process...)
	w.command.Stdout, w.command.Stderr = &w.output, &w.output
	require.NoError(t, w.command.Start())
	until(t, "the process must wait", func() bool {
		folders, err := filepath.Glob(filepath.Join(c.Results, "w*"))
		require.NoError(t, err)
		if len(folders) != 1 {
			return false
		}
		w.name = filepath.Base(folders[0])
		return exists(folders[0], "note") && w.state(t) == session.Waiting
	})
	return w
}

// inWait returns a container with a process that waits.
func inWait(t testing.TB, change func(*runplan.Plan)) *waiting {
	t.Helper()
	c := newWaiting(t, change)
	w := c.starts(t, c.script(t, goesOn)...)
	until(t, "the process must be up", func() bool { return exists(c.Work, "up") })
	return w
}

// file returns the path of a file in the session's folder.
func (w *waiting) file(name string) string { return filepath.Join(w.Results, w.name, name) }

// note returns the note of the session.
func (w *waiting) note(t testing.TB) note {
	t.Helper()
	raw, err := os.ReadFile(w.file("note"))
	require.NoError(t, err)
	n := note{}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		require.NotContains(t, n, key)
		n[key] = value
	}
	return n
}

func (w *waiting) state(t testing.TB) session.State {
	t.Helper()
	return session.State(strings.TrimSpace(w.note(t)["state"]))
}

// reaches waits until the session is in a state.
func (w *waiting) reaches(t testing.TB, state session.State) {
	t.Helper()
	until(t, "the session must be "+string(state), func() bool { return w.state(t) == state })
}

// uuid returns the id of the n-th command.
func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }

// writes writes the file of a command by rename.
func (w *waiting) writes(t testing.TB, name string, content []byte) {
	t.Helper()
	tmp := filepath.Join(w.Plan, "new")
	require.NoError(t, os.WriteFile(tmp, content, 0o644))
	require.NoError(t, os.Rename(tmp, filepath.Join(w.Plan, session.ControlFolder, name)))
}

// sends writes a command and returns its id.
func (w *waiting) sends(t testing.TB, n int, command session.Control) string {
	t.Helper()
	command.ID = uuid(n)
	raw, err := command.Encode()
	require.NoError(t, err)
	w.writes(t, w.name, raw)
	return command.ID
}

// takes sends a command and waits until prism-run has read it: it sleeps again after that, and it sleeps before it.
func (w *waiting) takes(t testing.TB, n int, command session.Control) string {
	t.Helper()
	var slept string
	until(t, "prism-run must sleep", func() (is bool) {
		slept, is = w.sleeps(t)
		return is
	})
	id := w.sends(t, n, command)
	until(t, "the command must be read", func() bool {
		now, is := w.sleeps(t)
		return is && now != slept
	})
	return id
}

// sleeps returns how often prism-run has slept, and whether it does.
func (w *waiting) sleeps(t testing.TB) (count string, is bool) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.command.Process.Pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(raw), "\nvoluntary_ctxt_switches:")
	require.True(t, found)
	return strings.Fields(rest)[0], strings.Contains(string(raw), "\nState:\tS")
}

// answers returns the answers of the session.
func (w *waiting) answers(t testing.TB) []session.Answer {
	t.Helper()
	raw, err := os.ReadFile(w.file(session.AnswersFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	parsed := session.ParseAnswers(raw, time.Now())
	require.Len(t, parsed, bytes.Count(raw, []byte("\n")), string(raw))
	return parsed
}

// outcome returns the answer to a command; its outcome is empty while there is none.
func (w *waiting) outcome(t testing.TB, id string) session.Answer {
	t.Helper()
	for _, answer := range w.answers(t) {
		if answer.ID == id {
			return answer
		}
	}
	return session.Answer{}
}

// answered waits until a command has an outcome.
func (w *waiting) answered(t testing.TB, id string, outcome session.Outcome) session.Answer {
	t.Helper()
	var answer session.Answer
	until(t, "the outcome must be "+string(outcome), func() bool {
		answer = w.outcome(t, id)
		return answer.Outcome == outcome
	})
	return answer
}

// does sends a command at once and waits for its outcome.
func (w *waiting) does(t testing.TB, n int, verb session.Verb, outcome session.Outcome) session.Answer {
	t.Helper()
	return w.answered(t, w.sends(t, n, session.Control{Verb: verb}), outcome)
}

// ends makes the process exit and returns its exit code.
func (w *waiting) ends(t testing.TB) int {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(w.Work, "down"), nil, 0o600))
	return w.exits(t)
}

// exits waits for the exit of the process.
func (w *waiting) exits(t testing.TB) int {
	t.Helper()
	var failed *exec.ExitError
	if err := w.command.Wait(); !errors.As(err, &failed) {
		require.NoError(t, err)
	}
	assert.Empty(t, w.output.String())
	return w.command.ProcessState.ExitCode()
}

// recorded returns the note of a recording.
func (w *waiting) recorded(t testing.TB, name string) note {
	t.Helper()
	for _, n := range w.notes(t) {
		if n["name"] == name {
			return n
		}
	}
	require.Fail(t, "no recording "+name)
	return nil
}

// holds creates a file that makes the tool fail, and returns a function that removes it.
func (w *waiting) holds(t testing.TB, name string) (release func()) {
	t.Helper()
	path := filepath.Join(w.Work, name)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	return func() { require.NoError(t, os.Remove(path)) }
}

// locked reports whether prism-run holds the note of the session.
func (w *waiting) locked(t testing.TB) bool {
	t.Helper()
	return isLocked(t, w.file("note"))
}

// isLocked reports whether a process holds the lock of a file or folder.
func isLocked(t testing.TB, path string) bool {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

const (
	start  = v1alpha1.SessionStart
	stop   = v1alpha1.SessionStop
	cancel = v1alpha1.SessionCancel
)
