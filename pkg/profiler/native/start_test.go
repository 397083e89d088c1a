package native

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
)

// TestRun_KilledBeforeExecuted_ToolEnded: nothing waits for a profiler without a process to profile.
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

// TestRun_TermWhileToolStarts_ProcessTerminated: the termination grace period of a process is not spent on waiting for nsys.
func TestRun_TermWhileToolStarts_ProcessTerminated(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("needs flock")
	}
	for name, before := range map[string]string{
		"tool is silent": "", "others start": holdsLock,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, func(p *runplan.Plan) { p.Env = []string{"FAKE=silent"} })
			program := strings.Join(c.script(t, "exec sleep 1000"), " ")
			_, output := c.run(t, c.outer(t, before+program+` & run=$!
while ! grep -qs Starting /run/prism/results/s*/note; do sleep 0.01; done; kill $run; wait $run; echo $?`)...)
			assert.Contains(t, output, "143\n")
			assert.Contains(t, c.one(t)["message"], "the process received SIGTERM before nsys started")
		})
	}
}

// withLimit runs a test with increasing limits, until a limit is long enough for this machine: run returns false if it is not.
func withLimit(t *testing.T, run func(limit time.Duration) bool) {
	t.Helper()
	for limit := 4 * time.Second; limit <= 2*time.Minute; limit *= 2 {
		if run(limit) {
			return
		}
		t.Logf("a limit of %v is too short for this machine", limit)
	}
	require.Fail(t, "no limit is long enough")
}

// holdsLock makes a process hold the lock for starts of nsys.
const holdsLock = `flock /dev/shm sh -c 'echo >/run/work/locked; exec sleep 1000' & until [ -e /run/work/locked ]; do sleep 0.01; done; `

const (
	lockHeld = "nsys was started while other processes of the pod held the lock of /dev/shm"
	tooLate  = "nsys did not start its program in time"
)

// TestRun_TimeSpentOnLock_NoneForTool: the start timeout covers both the lock and nsys. prism-run is stopped while it waits for the lock
// until that time is over; nsys would start at once.
func TestRun_TimeSpentOnLock_NoneForTool(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("needs flock")
	}
	withLimit(t, func(limit time.Duration) bool {
		c := newContainer(t, func(p *runplan.Plan) { p.Ready = limit })
		program := strings.Join(c.script(t, "exit 4"), " ")
		code, output := c.run(t, c.outer(t, fmt.Sprintf(`%s%s & run=$!
until ls -l /proc/$run/fd 2>/dev/null | grep -q /dev/shm; do sleep 0.01; done
kill -STOP $run; [ -e /run/work/switches ] && echo started; sleep %d; kill -CONT $run; wait $run`, holdsLock, program, int(limit.Seconds())+1))...)
		assert.Equal(t, 4, code, output)
		if output != "" {
			return false
		}
		n := c.one(t)
		assert.Equal(t, "Starting Failed", n["state"])
		assert.Contains(t, n["message"], lockHeld+" "+tooLate)
		return true
	})
}

// TestRun_OtherStarts_Waits: while another process of the pod starts its profiler. A start that never ends does not block nsys.
func TestRun_OtherStarts_Waits(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("needs flock")
	}
	t.Run("for a while", func(t *testing.T) {
		t.Parallel()
		c := newContainer(t, nil)
		const held = `flock /dev/shm sh -c 'echo >/run/work/locked; until [ -e /run/prism/results/s*/note ]; do sleep 0.01; done; sleep 0.2'`
		program := strings.Join(c.script(t, "echo once; exit 4"), " ")
		code, output := c.run(t, c.outer(t, held+" & until [ -e /run/work/locked ]; do sleep 0.01; done; "+program)...)
		assert.Equal(t, 4, code)
		assert.Equal(t, "once\n", output)
		n := c.one(t)
		assert.Equal(t, []string{finished, ""}, []string{n["state"], n["message"]})
	})
	t.Run("all the time", func(t *testing.T) {
		t.Parallel()
		withLimit(t, func(limit time.Duration) bool {
			c := newContainer(t, func(p *runplan.Plan) { p.Ready = limit })
			code, output := c.run(t, c.outer(t, holdsLock+strings.Join(c.script(t, "echo once; exit 4"), " "))...)
			assert.Equal(t, 4, code)
			assert.Equal(t, "once\n", output)
			n := c.one(t)
			if strings.Contains(n["message"], tooLate) {
				return false
			}
			assert.Equal(t, []string{finished, lockHeld}, []string{n["state"], n["message"]})
			return true
		})
	})
}

// TestRun_ToolCollides_StartedAgain: nsys exits if another container uses the same names, which contain its process id.
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
