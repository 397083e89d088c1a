package native

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/test/debian"
)

// nvtxLibrary is the NVTX library in a container of nvtxContainer.
const nvtxLibrary = "libnvToolsExt.so.1"

// nvtxContainer returns a container with nsys of a release, which records these ranges according to end.
func nvtxContainer(t *testing.T, release, wanted, end string) *container {
	t.Helper()
	dir, err := debian.Package{Name: "debian-nvtx-bookworm", Package: "libnvtoolsext1", Release: "bookworm", Free: true}.Unpacked(t.Context(), !testing.Short())
	if err != nil {
		t.Skipf("the library of NVTX is not available: %v", err)
	}
	c := withNsys(t, release, func(p *runplan.Plan) {
		p.Switches = []string{
			"--trace=nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--kill=none", "--wait=primary", "--capture-range=nvtx", "--capture-range-end=" + end,
			"--nvtx-capture=" + wanted,
			"--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
		}
	})
	content, err := os.ReadFile(filepath.Join(dir, "usr/lib/x86_64-linux-gnu", nvtxLibrary))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(c.Work, nvtxLibrary), content, 0o755))
	return c
}

// ranged returns a container, and a Python program in it that enters an NVTX range once the file "begin" exists, and exits with 6 once
// "end" exists.
func ranged(t *testing.T, wanted string) (*container, []string) {
	t.Helper()
	c := nvtxContainer(t, "bookworm", wanted, "stop")
	return c, c.python(t, `import ctypes, os, sys, time
nvtx = ctypes.CDLL("/run/work/`+nvtxLibrary+`")
while not os.path.exists("/run/work/begin"): time.sleep(0.01)
nvtx.nvtxRangePushA(b"step")
time.sleep(0.2)
nvtx.nvtxRangePop()
while not os.path.exists("/run/work/end"): time.sleep(0.01)
sys.exit(6)`)
}

// touch creates a file that the program waits for.
func (c *container) touch(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(c.Work, name), nil, 0o644))
}

// state returns the last reason and the last state of the only session; empty while there is none.
func (c *container) state(t *testing.T) (reason, state string) {
	t.Helper()
	for _, n := range c.notes(t) {
		return n["reason"], n["state"]
	}
	return "", ""
}

// rangeAttempts is the number of attempts until nsys notices the range of a process: 2022.4.2 did not in 1 of 120 runs on a loaded machine.
// The process is not affected then, and its session reports RangeNotReached.
const rangeAttempts = 3

// TestNsys_Range_ReasonUntilReached: the session waits for the range and reports it, and the report is complete while the process
// continues.
func TestNsys_Range_ReasonUntilReached(t *testing.T) {
	t.Parallel()
	for attempt := range rangeAttempts {
		if reachesRange(t, attempt == rangeAttempts-1) {
			return
		}
	}
}

// reachesRange runs a process through its range. It returns false if nsys did not notice the range, which fails the test at the last
// attempt.
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
		if c.again(t) { // Without a session the process would wait forever.
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

// TestNsys_Range_NeverReached: the process runs as without the profiler, and the session reports why there is no report.
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

// TestRun_Ranges_ReportsNoted: nsys numbers the reports of ranges. Reports that stay in the container are noted, and none is taken for
// another process's report.
func TestRun_Ranges_ReportsNoted(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.Env = []string{"FAKE=ranges"} })
	code, output := c.run(t, c.script(t, "exit 4")...)
	assert.Equal(t, 4, code, output)
	assert.Equal(t, finished, c.one(t)["state"])
	assert.Empty(t, c.one(t)["size"], "the store finds what is in the results")

	c = newContainer(t, func(p *runplan.Plan) { p.Env, p.Dir, p.File = []string{"FAKE=ranges"}, "/run/work/out", "report" })
	for range 2 {
		code, output := c.run(t, c.script(t, "exit 4")...)
		assert.Equal(t, 4, code, output)
	}
	there, err := filepath.Glob(filepath.Join(c.Work, "out", "*"))
	require.NoError(t, err)
	assert.Len(t, there, 6)
	for _, n := range c.notes(t) {
		assert.Equal(t, finished, n["state"])
		paths := strings.Fields(n["path"])
		assert.Regexp(t, `^/run/work/out/report(_[0-9a-f]{16})?\.1\.qdstrm$`, paths[len(paths)-1])
		assert.Equal(t, []string{"9", "9", "10"}, []string{n["size"], n["size.2"], n["size.16"]})
	}
}

// rangesProgram enters the range "step" as often as its argument says, with marks in each and after it, then runs the next argument, and
// exits with 6 once the file "end" exists.
const rangesProgram = `import ctypes, os, signal, sys, time
nvtx = ctypes.CDLL("/run/work/` + nvtxLibrary + `")
def begin(mark):
    nvtx.nvtxRangePushA(b"step")
    nvtx.nvtxMarkA(mark.encode())
for number in range(1, int(sys.argv[1]) + 1):
    begin("mark-in-%d." % number)
    nvtx.nvtxRangePop()
    nvtx.nvtxMarkA(b"mark-after-%d." % number)
if sys.argv[2] == "within": begin("mark-in-%d." % (number + 1))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(6))
if sys.argv[2] == "terminated": os.kill(os.getpid(), signal.SIGTERM)
while not os.path.exists("/run/work/end"): time.sleep(0.01)
sys.exit(6)`

// repeated describes how a program with several ranges is recorded, by nsys of these releases.
type repeated struct {
	releases          []string
	end, ranges, then string
	// goesOn makes the program wait for the reports.
	goesOn bool
	code   int
	want   []string
}

// TestNsys_RangesRepeat_ReportEach: nsys writes a report of each range, with exactly its content, after the last range to record, or when
// the process exits: after its ranges, within a range, or by a signal.
func TestNsys_RangesRepeat_ReportEach(t *testing.T) {
	t.Parallel()
	both, older, later := []string{"bookworm", "trixie"}, []string{"bookworm"}, []string{"trixie"}
	for name, test := range map[string]repeated{
		"as many as it may":   {both, "repeat:2", "3", "", true, 6, []string{"report.1.qdstrm", "report.2.qdstrm"}},
		"fewer":               {both, "repeat:16", "3", "", false, 6, []string{"report.1.qdstrm", "report.2.qdstrm", "report.3.qdstrm"}},
		"one":                 {later, "repeat:16", "1", "", false, 6, []string{"report.qdstrm"}},
		"exit within a range": {older, "repeat:16", "1", "within", false, 6, []string{"report.1.qdstrm", "report.2.qdstrm"}},
		"signal between them": {later, "repeat:16", "2", "terminated", false, 6, []string{"report.1.qdstrm", "report.2.qdstrm"}},
	} {
		for _, release := range test.releases {
			t.Run(nsys[release]+" "+name, func(t *testing.T) {
				t.Parallel()
				for attempt := range rangeAttempts {
					if test.recorded(t, release, attempt == rangeAttempts-1) {
						return
					}
				}
			})
		}
	}
}

// recorded runs the program. It returns false if nsys did not notice all ranges, which fails the test at the last attempt.
func (r repeated) recorded(t *testing.T, release string, last bool) bool {
	t.Helper()
	c := nvtxContainer(t, release, "step@*", r.end)
	if !r.goesOn {
		c.touch(t, "end")
	}
	var code int
	var waits sync.WaitGroup
	waits.Go(func() { code, _ = c.run(t, append(c.python(t, rangesProgram), r.ranges, r.then)...) })
	if r.goesOn {
		deadline := time.Now().Add(time.Minute)
		until(t, "the reports must be there while the process goes on", func() bool {
			_, state := c.state(t)
			return state == finished || !last && time.Now().After(deadline)
		})
		c.touch(t, "end")
	}
	waits.Wait()
	require.Equal(t, r.code, code, c.log(t))
	marks := c.marks(t)
	if got := slices.Sorted(maps.Keys(marks)); !last && !slices.Equal(r.want, got) {
		t.Logf("nsys has not noticed a range: %v\n%s", marks, c.log(t))
		return false
	}
	_, state := c.state(t)
	assert.Equal(t, finished, state)
	want := map[string][]string{}
	for i, report := range r.want {
		want[report] = []string{fmt.Sprintf("mark-in-%d.", i+1)}
	}
	assert.Equal(t, want, marks, c.log(t))
	return true
}

// marks returns the marks in each report of the only session, by file.
func (c *container) marks(t *testing.T) map[string][]string {
	t.Helper()
	marks := map[string][]string{}
	reports, err := filepath.Glob(filepath.Join(c.Results, "s*", "report*"))
	require.NoError(t, err)
	for _, report := range reports {
		raw, err := os.ReadFile(report)
		require.NoError(t, err)
		found := regexp.MustCompile(`mark-(in|after)-[0-9]+\.`).FindAllString(string(raw), -1)
		slices.Sort(found)
		marks[filepath.Base(report)] = slices.Compact(found)
	}
	return marks
}
