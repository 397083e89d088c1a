package native

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/test/debian"
)

// ranged is a container, and a Python program in it that reaches an NVTX range once the file "begin" is there, and exits with 6 once "end" is.
func ranged(t *testing.T, wanted string) (*container, []string) {
	t.Helper()
	const library = "libnvToolsExt.so.1"
	dir, err := debian.Package{Name: "debian-nvtx-bookworm", Package: "libnvtoolsext1", Release: "bookworm", Free: true}.Unpacked(t.Context(), !testing.Short())
	if err != nil {
		t.Skipf("the library of NVTX is not available: %v", err)
	}
	c := withNsys(t, "bookworm", func(p *runplan.Plan) {
		p.Switches = []string{
			"--trace=nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--kill=none", "--wait=primary", "--capture-range=nvtx", "--capture-range-end=stop",
			"--nvtx-capture=" + wanted,
			"--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
		}
	})
	content, err := os.ReadFile(filepath.Join(dir, "usr/lib/x86_64-linux-gnu", library))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(c.Work, library), content, 0o755))
	return c, c.python(t, `import ctypes, os, sys, time
nvtx = ctypes.CDLL("/run/work/`+library+`")
while not os.path.exists("/run/work/begin"): time.sleep(0.01)
nvtx.nvtxRangePushA(b"step")
time.sleep(0.2)
nvtx.nvtxRangePop()
while not os.path.exists("/run/work/end"): time.sleep(0.01)
sys.exit(6)`)
}

// touch makes a file that the program waits for.
func (c *container) touch(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(c.Work, name), nil, 0o644))
}

// state is the last reason and the last state of the only session; empty as long as there is none.
func (c *container) state(t *testing.T) (reason, state string) {
	t.Helper()
	for _, n := range c.notes(t) {
		return n["reason"], n["state"]
	}
	return "", ""
}

// rangeAttempts is how often a process is started until nsys has noticed its range: 2022.4.2 did not in 1 of 120 runs on a loaded machine. The
// process is unharmed then, and its session says RangeNotReached.
const rangeAttempts = 3

// TestNsys_Range_ReasonUntilReached: the session waits for the range and says so, and the report is there while the process goes on.
func TestNsys_Range_ReasonUntilReached(t *testing.T) {
	t.Parallel()
	for attempt := range rangeAttempts {
		if reachesRange(t, attempt == rangeAttempts-1) {
			return
		}
	}
}

// reachesRange runs a process through its range. It returns false if nsys has not noticed that, which fails the test at the last attempt.
func reachesRange(t *testing.T, last bool) bool {
	t.Helper()
	c, program := ranged(t, "step@*")
	var output bytes.Buffer
	command := waitsForRange(t, c, program, &output)
	c.touch(t, "begin")
	deadline := time.Now().Add(time.Minute)
	until(t, "the report must be there while the process goes on", func() bool {
		_, state := c.state(t)
		return state == finished || !last && time.Now().After(deadline)
	})
	reason, state := c.state(t)
	noticed := state == finished
	if noticed {
		assert.Equal(t, "RangeNotReached ", reason, "an empty reason follows, which takes it back")
	} else {
		t.Logf("nsys has not noticed the range; notes %v, nsys: %s", c.notes(t), c.log(t))
	}
	c.touch(t, "end")
	require.ErrorContains(t, command.Wait(), "exit status 6")
	assert.Empty(t, output.String())
	return noticed
}

// waitsForRange starts a process whose session waits for its range.
func waitsForRange(t *testing.T, c *container, program []string, output *bytes.Buffer) *exec.Cmd {
	t.Helper()
	start := func() *exec.Cmd {
		command := c.command(t, program...)
		command.Stdout, command.Stderr = output, output
		require.NoError(t, command.Start())
		return command
	}
	command := start()
	until(t, "the session must wait", func() bool {
		if c.again(t) { // Without a session the process would wait for ever.
			require.NoError(t, command.Process.Kill())
			require.ErrorContains(t, command.Wait(), "killed")
			output.Reset()
			command = start()
		}
		reason, state := c.state(t)
		return reason == "RangeNotReached" && state == "Starting Recording"
	})
	return command
}

// TestNsys_Range_NeverReached: the process runs as without, and the session says why there is no report.
func TestNsys_Range_NeverReached(t *testing.T) {
	t.Parallel()
	c, program := ranged(t, "other@*")
	c.touch(t, "begin")
	c.touch(t, "end")
	code, _ := c.run(t, program...)
	assert.Equal(t, 6, code)
	reason, state := c.state(t)
	assert.Contains(t, reason, "RangeNotReached")
	assert.NotContains(t, reason, "ReportLost")
	assert.Contains(t, state, "Failed")
}
