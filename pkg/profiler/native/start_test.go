package native

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
)

// TestRun_KilledBeforeExecuted_ToolEnded: nothing waits for a profiler that has nothing to profile.
func TestRun_KilledBeforeExecuted_ToolEnded(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.Env = []string{"FAKE=killer"} })
	c.Child = true
	code, output := c.run(t, c.script(t, "echo ran")...)
	assert.Zero(t, code)
	assert.Equal(t, "status 0x9\n", output)
	assert.Contains(t, c.one(t)["message"], "the process was killed before it was executed")

	closed := newContainer(t, func(p *runplan.Plan) { p.Env, p.FailClosed = []string{"FAKE=killer"}, true })
	closed.Child = true
	_, output = closed.run(t, closed.script(t, "echo ran")...)
	assert.Equal(t, "status 0x9\n", output, "also where it must not run without the profiler")
}

// TestRun_TermWhileToolStarts_ProcessTerminated: the time that a process has to end is not spent on waiting for nsys.
func TestRun_TermWhileToolStarts_ProcessTerminated(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("needs flock")
	}
	for name, before := range map[string]string{
		"tool is silent": "", "others start": "flock /dev/shm sh -c 'echo >/run/work/locked; exec sleep 1000' & while [ ! -e /run/work/locked ]; do sleep 0.01; done; ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, func(p *runplan.Plan) { p.Env, p.Ready = []string{"FAKE=silent"}, 5*time.Minute })
			program := strings.Join(c.script(t, "exec sleep 1000"), " ")
			began := time.Now()
			_, output := c.run(t, c.outer(t, before+program+` & run=$!
while ! grep -qs Starting /run/prism/results/s*/note; do sleep 0.01; done; kill $run; wait $run; echo $?`)...)
			assert.Contains(t, output, "143\n")
			assert.Less(t, time.Since(began), 2*time.Minute)
			assert.Contains(t, c.one(t)["message"], "the process received SIGTERM before nsys started")
		})
	}
}

// TestRun_LockedAndSilent_OneDeadline: the lock and nsys have the time to start together, not each.
func TestRun_LockedAndSilent_OneDeadline(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("needs flock")
	}
	c := newContainer(t, func(p *runplan.Plan) { p.Env, p.Ready = []string{"FAKE=silent"}, 20*time.Second })
	program := strings.Join(c.script(t, "date +%s%N >/run/work/ran; exit 4"), " ")
	code, output := c.run(t, c.outer(t, `flock /dev/shm sh -c 'echo >/run/work/locked; exec sleep 1000' & while [ ! -e /run/work/locked ]; do sleep 0.01; done; `+program)...)
	assert.Equal(t, 4, code, output)
	raw, err := os.ReadFile(filepath.Join(c.Work, "ran"))
	require.NoError(t, err)
	ran, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	require.NoError(t, err)
	started, err := strconv.ParseInt(c.one(t)["started"], 10, 64)
	require.NoError(t, err)
	assert.Less(t, time.Duration(ran-started), 28*time.Second, "half for the lock and all of it for nsys are 30")
}

// TestRun_OtherStarts_Waits: while another process of the pod starts its profiler. One that never ends does not keep processes from running.
func TestRun_OtherStarts_Waits(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("needs flock")
	}
	const noted = "nsys was started while other processes of the pod held the lock of /dev/shm"
	for name, c := range map[string]struct{ held, state, message string }{
		"for a while":  {`flock /dev/shm sh -c 'echo >/run/work/locked; while [ ! -e /run/prism/results/s*/note ]; do sleep 0.01; done; sleep 0.2'`, finished, ""},
		"all the time": {`flock /dev/shm sh -c 'echo >/run/work/locked; exec sleep 1000'`, finished, noted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := newContainer(t, func(p *runplan.Plan) {
				if c.message != "" {
					p.Ready = 20 * time.Second
				}
			})
			program := strings.Join(box.script(t, "echo once; exit 4"), " ")
			code, output := box.run(t, box.outer(t, c.held+" & while [ ! -e /run/work/locked ]; do sleep 0.01; done; "+program)...)
			assert.Equal(t, 4, code)
			assert.Equal(t, "once\n", output)
			n := box.one(t)
			assert.Equal(t, []string{c.state, c.message}, []string{n["state"], n["message"]})
		})
	}
}

// TestRun_ToolCollides_StartedAgain: nsys exits where another container has what it names by its process id.
func TestRun_ToolCollides_StartedAgain(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.Env = []string{"FAKE=collide"} })
	code, output := c.run(t, c.script(t, "echo once; exit 6")...)
	assert.Equal(t, 6, code)
	assert.Equal(t, "once\n", output)
	assert.Equal(t, finished, c.one(t)["state"])
	starts, err := filepath.Glob(filepath.Join(c.Work, "start-*"))
	require.NoError(t, err)
	assert.Len(t, starts, 3, "processes that collided")
}
