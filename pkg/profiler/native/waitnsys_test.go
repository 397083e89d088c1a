package native

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/pkg/profiler/session"
	"github.com/prism-gpu/prism/test/debian"
)

// enough is the number of times that a mark is set before a test goes on: on a busy machine the tool may ignore the first events of a
// process after nsys start has returned.
const enough = 100

// marks sets NVTX marks named like the files in the folder "marks", again and again: once it did so often enough, it creates the file
// "marked-<name>", and once the file is gone, "unmarked-<name>". It exits with 6 once "down" exists.
const marks = `import collections, ctypes, os, sys, time
nvtx = ctypes.CDLL("/run/work/` + nvtxLibrary + `")
count = collections.Counter()
while not os.path.exists("/run/work/down"):
    names = os.listdir("/run/work/marks")
    for name in names:
        nvtx.nvtxMarkA(name.encode())
        count[name] += 1
        if count[name] == ` + "%d" + `:
            open("/run/work/marked-" + name, "w").close()
    for name in [n for n in count if n not in names]:
        del count[name]
        open("/run/work/unmarked-" + name, "w").close()
    time.sleep(0.01)
sys.exit(6)`

// inWaitOfNsys returns a Python program that waits with NVIDIA's own tool.
func inWaitOfNsys(t testing.TB, change func(*runplan.Plan)) *waiting {
	t.Helper()
	dir, err := debian.Package{Name: "debian-nvtx-bookworm", Package: "libnvtoolsext1", Release: "bookworm", Free: true}.Unpacked(t.Context(), !testing.Short())
	if err != nil {
		t.Skipf("the library of NVTX is not available: %v", err)
	}
	c := withNsys(t, "trixie", func(p *runplan.Plan) {
		p.Manual = true
		p.Switches, p.StartSwitches = []string{"--trace=nvtx,osrt", "--wait=primary"}, []string{"--sample=none", "--cpuctxsw=none"}
		if change != nil {
			change(p)
		}
	})
	content, err := os.ReadFile(filepath.Join(dir, "usr/lib/x86_64-linux-gnu", nvtxLibrary))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(c.Work, nvtxLibrary), content, 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(c.Work, "marks"), 0o777))
	return c.starts(t, c.python(t, fmt.Sprintf(marks, enough))...)
}

// marks makes the process set a mark, until end or the end of the process.
func (w *waiting) marks(t testing.TB, name string) (end func()) {
	t.Helper()
	file := filepath.Join(w.Work, "marks", name)
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	until(t, "the mark must be set", func() bool { return exists(w.Work, "marked-"+name) })
	return func() {
		require.NoError(t, os.Remove(file))
		until(t, "the mark must not be set any more", func() bool { return exists(w.Work, "unmarked-"+name) })
	}
}

// marked returns the marks in the report of a recording.
func (w *waiting) marked(t testing.TB, recording string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(w.Results, recording, "report.qdstrm"))
	require.NoError(t, err)
	found := regexp.MustCompile(`mark-[a-z]+\.`).FindAllString(string(raw), -1)
	slices.Sort(found)
	return slices.Compact(found)
}

// TestNsys_StartStopAgain_EventsInBetween: a report contains what the process did while it was recorded, and nothing else. The last
// recording ends with the process.
func TestNsys_StartStopAgain_EventsInBetween(t *testing.T) {
	t.Parallel()
	w := inWaitOfNsys(t, nil)
	w.marks(t, "mark-before.")()
	first := w.does(t, 1, start, session.Begun).Report
	w.marks(t, "mark-first.")()
	w.does(t, 2, stop, session.Recorded)
	w.marks(t, "mark-between.")()
	cancelled := w.does(t, 3, start, session.Begun).Report
	w.marks(t, "mark-cancelled.")()
	w.does(t, 4, cancel, session.Cancelled)
	last := w.does(t, 5, start, session.Begun).Report
	w.marks(t, "mark-last.")
	w.does(t, 6, start, session.AlreadyRecording)
	assert.Equal(t, 6, w.ends(t))
	assert.Equal(t, []string{"mark-first."}, w.marked(t, first))
	assert.Equal(t, []string{"mark-last."}, w.marked(t, last))
	assert.Equal(t, []string{"note"}, w.files(t, cancelled))
	for _, report := range []string{first, last} {
		n := w.recorded(t, report)
		assert.Equal(t, []string{finished, "0"}, []string{n["state"], n["toolExit"]}, "%v", n)
	}
	assert.Equal(t, session.Recorded, w.outcome(t, uuid(5)).Outcome)
}

// TestNsys_TermInWait_ProcessExits: whether it is recorded or not.
func TestNsys_TermInWait_ProcessExits(t *testing.T) {
	t.Parallel()
	for name, records := range map[string]bool{"waiting": false, "recording": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := withNsys(t, "trixie", func(p *runplan.Plan) {
				p.Manual = true
				p.Switches, p.StartSwitches = []string{"--trace=osrt", "--wait=primary"}, []string{"--sample=none", "--cpuctxsw=none"}
			})
			w := c.starts(t, c.python(t, server)...)
			until(t, "the server must be up", func() bool { return exists(c.Work, "up") })
			if records {
				w.does(t, 1, start, session.Begun)
			}
			require.NoError(t, w.command.Process.Signal(syscall.SIGTERM))
			assert.Equal(t, 5, w.exits(t))
			if records {
				assert.Equal(t, finished, w.one(t)["state"])
			} else {
				assert.Empty(t, w.notes(t))
			}
		})
	}
}

// TestNsys_LaunchKilled_RecordingEnded: the session of nsys outlives the command that launched it.
func TestNsys_LaunchKilled_RecordingEnded(t *testing.T) {
	t.Parallel()
	w := inWaitOfNsys(t, nil)
	report := w.does(t, 1, start, session.Begun).Report
	w.marks(t, "mark-first.")()
	kill := exec.CommandContext(t.Context(), "pkill", "-KILL", "-P", itoa(w.command.Process.Pid), "-f", "nsys launch")
	require.NoError(t, kill.Run())
	w.answered(t, uuid(1), session.Recorded)
	until(t, "the session must be over", func() bool { return !w.locked(t) })
	assert.Equal(t, 6, w.ends(t))
	assert.Equal(t, []string{"mark-first."}, w.marked(t, report))
}
