package native

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/test/debian"
)

// nsys are the versions of Nsight Systems by Debian's releases.
var nsys = map[string]string{"bookworm": "2022.4.2", "trixie": "2023.4.4"}

// withNsys returns a container with NVIDIA's own tool.
func withNsys(t testing.TB, release string, change func(*runplan.Plan)) *container {
	t.Helper()
	dir, err := debian.NsightSystems(release).Unpacked(t.Context(), !testing.Short())
	if err != nil {
		t.Skipf("Nsight Systems of Debian %s is not available: %v", release, err)
	}
	c := newContainer(t, func(p *runplan.Plan) {
		p.Switches = []string{"--trace", "osrt", "--sample", "none", "--cpuctxsw", "none", "--kill", "none", "--wait", "primary"}
		if change != nil {
			change(p)
		}
	})
	c.Tool, err = filepath.EvalSymlinks(filepath.Join(dir, "usr/lib/nsight-systems/target-linux-x64"))
	require.NoError(t, err)
	return c
}

// python returns the command of a Python program with "profiled" in its name.
func (c *container) python(t testing.TB, text string) []string {
	return c.pythonIn(t, "profiled.py", text)
}

// outerPython returns the command of a Python program that does not match.
func (c *container) outerPython(t testing.TB, text string) []string {
	return c.pythonIn(t, "outer.py", text)
}

func (c *container) pythonIn(t testing.TB, name, text string) []string {
	t.Helper()
	// Not a user's own interpreter, which other users cannot read.
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skip("needs python3")
	}
	require.NoError(t, os.WriteFile(filepath.Join(c.Work, name), []byte(text), 0o755))
	return []string{python, "/run/work/" + name}
}

// log returns the output of nsys.
func (c *container) log(t testing.TB) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(c.Results, "s*", "nsys.log"))
	require.NoError(t, err)
	require.Len(t, logs, 1)
	raw, err := os.ReadFile(logs[0])
	require.NoError(t, err)
	return string(raw)
}

// recorded checks that nsys wrote the report of the only session, and prints its start time.
func recorded(t *testing.T, c *container) {
	t.Helper()
	n := c.one(t)
	require.Equal(t, finished, n["state"], "%v\n%s", n, c.log(t))
	assert.Equal(t, "0", n["toolExit"])
	reports, err := filepath.Glob(filepath.Join(c.Results, "s*", "report.qdstrm"))
	require.NoError(t, err)
	require.Len(t, reports, 1)
	ready, err := strconv.ParseInt(n["ready"], 10, 64)
	require.NoError(t, err)
	t.Logf("nsys was ready after %v", time.Duration(ready).Round(time.Millisecond))
}

func TestNsys_Releases_PythonProfiled(t *testing.T) {
	t.Parallel()
	for release, version := range nsys {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := withNsys(t, release, nil)
			code, output := c.run(t, c.python(t, "import os, sys\nprint('libToolsInjectionProxy' in os.environ['LD_PRELOAD'])\nsys.exit(7)")...)
			assert.Equal(t, 7, code)
			assert.Equal(t, "True\n", output)
			recorded(t, c)
		})
	}
}

// TestNsys_Programs_AsWithout: the inputs and exits of programs are unchanged, for kinds of programs that nsys's own way to start them
// changes.
func TestNsys_Programs_AsWithout(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]func(t *testing.T, c *container) []string{
		"script": func(t *testing.T, c *container) []string {
			t.Helper()
			return c.script(t, "umask; ls /etc/hostname; cat; (exit 3); echo $?; kill -10 $$")
		},
		"launcher": func(t *testing.T, c *container) []string {
			t.Helper()
			return c.python(t, `import os, subprocess, sys
pid = os.fork()
if pid == 0:
    os.execvp("sh", ["sh", "-c", "echo child; exit 3"])
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), subprocess.run(["true"]).returncode, flush=True)
os.execvp("sh", ["sh", "-c", "umask; exit 9"])`)
		},
		"other libraries": func(t *testing.T, c *container) []string {
			t.Helper()
			return c.outer(t, "LD_PRELOAD=libdl.so.2 exec "+c.python(t, "import sys\nprint('libdl' in open('/proc/self/maps').read())\nsys.exit(4)")[0]+" /run/work/profiled.py")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, without := withNsys(t, "bookworm", nil), withNsys(t, "bookworm", nil)
			c.Child, without.Child, without.NoLibrary = true, true, true
			_, got := c.run(t, program(t, c)...)
			_, want := without.run(t, program(t, without)...)
			assert.Equal(t, want, got)
			recorded(t, c)
		})
	}
}

// server exits with 5 after SIGTERM. Its handler raises nothing: Python drops an exception of a handler that runs while an object is
// finalized, such as an unclosed file, and the server would continue.
const server = `import http.server, signal, sys, threading
server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), http.server.SimpleHTTPRequestHandler)
signal.signal(signal.SIGTERM, lambda *a: threading.Thread(target=server.shutdown).start())
with open("/run/work/up", "w"): pass
server.serve_forever()
sys.exit(5)`

func TestNsys_ServerAtTerm_ReportWritten(t *testing.T) {
	t.Parallel()
	c := withNsys(t, "bookworm", nil)
	for again := true; again; again = c.again(t) {
		_ = os.Remove(filepath.Join(c.Work, "up"))
		command := c.command(t, c.python(t, server)...)
		require.NoError(t, command.Start())
		until(t, "the server is up", func() bool { return exists(c.Work, "up") })
		require.NoError(t, command.Process.Signal(syscall.SIGTERM))
		require.Error(t, command.Wait())
		assert.Equal(t, 5, command.ProcessState.ExitCode())
	}
	recorded(t, c)
}

// TestNsys_Killed_ProcessGoesOn: the tool's processes are killed in the middle of the recording.
func TestNsys_Killed_ProcessGoesOn(t *testing.T) {
	t.Parallel()
	c := withNsys(t, "bookworm", nil)
	code, output := c.run(t, c.script(t, `for p in $(grep -l PRISM_SESSION /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3); do kill -9 $p 2>/dev/null; done
while ! grep -q Failed /run/prism/results/s*/note; do sleep 0.01; done; echo on; exit 6`)...)
	assert.Equal(t, 6, code)
	assert.Contains(t, output, "on\n", "beside what the tool's library says")
	n := c.one(t)
	assert.Equal(t, "Starting Recording Failed", n["state"], c.log(t))
	assert.Equal(t, "6", n["exit"])
}

func TestNsys_WithoutRights_Profiled(t *testing.T) {
	t.Parallel()
	c := withNsys(t, "trixie", nil)
	c.ReadOnly = false
	args := []string{"setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"}
	code, output := c.run(t, append(args, c.python(t, "import os\nprint(os.getuid())")...)...)
	assert.Zero(t, code)
	assert.Equal(t, "1234\n", output)
	recorded(t, c)
}

// TestNsys_Duration_ProcessGoesOn: nsys exits with its report after the duration.
func TestNsys_Duration_ProcessGoesOn(t *testing.T) {
	t.Parallel()
	c := withNsys(t, "bookworm", func(p *runplan.Plan) { p.Switches = append(p.Switches, "--duration", "1") })
	code, output := c.run(t, c.script(t, "while ! grep -qE 'Finished|Failed' /run/prism/results/s*/note; do sleep 0.01; done; echo on; exit 6")...)
	assert.Equal(t, 6, code)
	// The tool's library in a program that begins while nsys exits may print that nsys is gone.
	assert.True(t, strings.HasSuffix(output, "on\n"), output)
	assert.Equal(t, "Starting Recording Finished", c.one(t)["state"], c.log(t))
}

// TestNsys_Together_AllProfiled: several processes of a launcher begin at once, and others begin while they exit. The files of nsys in
// /dev/shm are shared by all processes of a pod, and two of its agents that create them at the same time deadlock.
func TestNsys_Together_AllProfiled(t *testing.T) {
	t.Parallel()
	const together, rounds = 4, 3
	c := withNsys(t, "bookworm", func(p *runplan.Plan) { p.MaxSessions = together })
	program := strings.Join(c.python(t, "import sys, time\ntime.sleep(int(sys.argv[1]) / 8)"), " ")
	script := fmt.Sprintf("for one in $(seq %d); do for round in $(seq %d); do %s $one; done & done; wait", together, rounds, program)
	require.NoError(t, c.command(t, c.outer(t, script)...).Run())
	notes := c.notes(t)
	require.Len(t, notes, together*rounds)
	for _, n := range notes {
		assert.Equal(t, finished, n["state"], "%v", n)
	}
}

// TestNsys_ContainersOfPod_AllProfiled: containers share /dev/shm and use the same process ids, and their processes begin while others
// exit. 2022.4.2 takes the sessions of other containers for sessions of exited processes, removes their state, and loses 1 of 20 reports.
func TestNsys_ContainersOfPod_AllProfiled(t *testing.T) {
	t.Parallel()
	const containers, rounds = 3, 3
	shared := t.TempDir()
	require.NoError(t, os.Chmod(shared, 0o777|os.ModeSticky))
	var all sync.WaitGroup
	for number := range containers {
		c := withNsys(t, "trixie", func(p *runplan.Plan) { p.MaxSessions = 1 })
		c.Shared = shared
		program := strings.Join(c.python(t, "import time\ntime.sleep("+strconv.Itoa(number+1)+" / 4)"), " ")
		all.Go(func() {
			assert.NoError(t, c.command(t, c.outer(t, "for round in $(seq "+strconv.Itoa(rounds)+"); do "+program+"; done")...).Run())
			notes := c.notes(t)
			assert.Len(t, notes, rounds)
			for _, n := range notes {
				assert.Equal(t, finished, n["state"], "%v", n)
			}
		})
	}
	all.Wait()
}

// TestNsys_NoTemporaryFolder_ProcessRuns: nsys requires one.
func TestNsys_NoTemporaryFolder_ProcessRuns(t *testing.T) {
	t.Parallel()
	c := withNsys(t, "bookworm", nil)
	c.ReadOnly = true
	code, output := c.run(t, c.script(t, "echo ran; exit 6")...)
	assert.Equal(t, 6, code)
	assert.Equal(t, "ran\n", output)
	assert.Equal(t, "6", c.one(t)["exit"])
}
