package native

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// inTurn starts and stops recordings of a session of nsys without prism-run, each once the file go-<n> exists, and writes the times around
// nsys start.
const inTurn = `nsys=/run/prism/tool/target-linux-x64/nsys
$nsys launch --session-new=own --trace=nvtx,osrt --wait=primary sleep 600 &
until $nsys sessions list | grep -q own; do sleep 0.1; done
touch /run/work/up
for n in $(seq %d); do
	until [ -e /run/work/go-$n ]; do sleep 0.01; done
	date +%%s%%N >>/run/work/before
	$nsys start --session=own --sample=none --cpuctxsw=none --output=/run/work/report-$n
	date +%%s%%N >>/run/work/after
	$nsys stop --session=own
	touch /run/work/did-$n
done
until [ -e /run/work/down ]; do sleep 0.1; done
$nsys shutdown --session=own --kill=sigkill`

// ofNsys returns a container for real sessions of nsys that wait.
func ofNsys(b *testing.B) *container {
	b.Helper()
	return withNsys(b, "trixie", func(p *runplan.Plan) {
		p.Manual = true
		p.Switches, p.StartSwitches = []string{"--trace=nvtx,osrt", "--wait=primary"}, []string{"--sample=none", "--cpuctxsw=none"}
	})
}

// nsysAlone runs inTurn, and returns how to end it.
func nsysAlone(b *testing.B, rounds int) (c *container, pid int, end func()) {
	b.Helper()
	c = ofNsys(b)
	c.NoLibrary = true
	command := c.command(b, c.script(b, fmt.Sprintf(inTurn, rounds))...)
	require.NoError(b, command.Start())
	until(b, "the session of nsys must be up", func() bool { return exists(c.Work, "up") })
	return c, command.Process.Pid, func() {
		require.NoError(b, os.WriteFile(filepath.Join(c.Work, "down"), nil, 0o644))
		_ = command.Wait() // its status is of nsys shutdown
	}
}

// BenchmarkCommand_OverNsysStart reports the time from a command's file until its answer, and of nsys start alone, in turn.
func BenchmarkCommand_OverNsysStart(b *testing.B) {
	const rounds = 20
	c := ofNsys(b)
	w := c.starts(b, c.script(b, goesOn)...)
	alone, _, end := nsysAlone(b, rounds)
	var commands, starts []float64
	for n := range rounds {
		began := time.Now()
		id := w.sends(b, 2*n+1, session.Control{Verb: v1alpha1.SessionStart})
		w.answered(b, id, session.Begun)
		commands = append(commands, float64(time.Since(began).Microseconds())/1e3)
		w.does(b, 2*n+2, stop, session.Recorded)
		require.NoError(b, os.WriteFile(filepath.Join(alone.Work, "go-"+itoa(n+1)), nil, 0o644))
		until(b, "nsys must start and stop", func() bool { return exists(alone.Work, "did-"+itoa(n+1)) })
	}
	end()
	w.ends(b)
	before := numbers(b, filepath.Join(alone.Work, "before"))
	for n, after := range numbers(b, filepath.Join(alone.Work, "after")) {
		starts = append(starts, float64(after-before[n])/1e6)
	}
	slices.Sort(commands)
	slices.Sort(starts)
	b.ReportMetric(0, "ns/op")
	for _, of := range []struct {
		name string
		at   int
	}{{"p50", rounds / 2}, {"p99", rounds - 1}} {
		b.ReportMetric(commands[of.at], "ms/command-"+of.name)
		b.ReportMetric(commands[of.at]/starts[of.at], "times/nsys-start-"+of.name)
	}
}

// BenchmarkCommand_SpreadOf20 reports the time between the first and the last of 20 recordings that one command starts.
func BenchmarkCommand_SpreadOf20(b *testing.B) {
	const sessions = 20
	var all []*waiting
	for range sessions {
		c := ofNsys(b)
		all = append(all, c.starts(b, c.script(b, goesOn)...))
	}
	for _, w := range all {
		w.sends(b, 1, session.Control{Verb: v1alpha1.SessionStart})
	}
	var begun []int64
	for _, w := range all {
		begun = append(begun, w.answered(b, uuid(1), session.Begun).Begun.UnixNano())
	}
	for _, w := range all {
		w.ends(b)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(slices.Max(begun)-slices.Min(begun))/1e9, "s/spread")
}

// BenchmarkWait_OverNsysLaunch reports the memory of a process that waits with its profiler, compared to nsys launch alone, and how often
// prism-run wakes up meanwhile.
func BenchmarkWait_OverNsysLaunch(b *testing.B) {
	const watched = 10 * time.Second
	c := ofNsys(b)
	w := c.starts(b, c.script(b, goesOn)...)
	_, pid, end := nsysAlone(b, 0)
	before := wakeUps(b, namespaceOf(b, w.command.Process.Pid))
	time.Sleep(watched)
	woken := wakeUps(b, namespaceOf(b, w.command.Process.Pid)) - before
	ours, theirs := memoryOf(b, w.command.Process.Pid), memoryOf(b, pid)
	end()
	w.ends(b)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(woken), "wake-ups/waiting")
	b.ReportMetric(ours/1024, "MiB/waiting")
	b.ReportMetric(ours/theirs, "times/nsys-launch")
}

// namespaceOf returns the processes in the mount namespace of one.
func namespaceOf(b *testing.B, pid int) (pids []string) {
	b.Helper()
	of, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	require.NoError(b, err)
	all, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(b, err)
	for _, process := range all {
		if other, err := os.Readlink(process + "/ns/mnt"); err == nil && other == of {
			pids = append(pids, process)
		}
	}
	return pids
}

// wakeUps returns how often prism-run has waited so far.
func wakeUps(b *testing.B, processes []string) (count int64) {
	b.Helper()
	for _, process := range processes {
		if name, err := os.ReadFile(process + "/comm"); err != nil || strings.TrimSpace(string(name)) != "prism-run" {
			continue
		}
		count += field(b, process+"/status", "voluntary_ctxt_switches:")
	}
	return count
}

// memoryOf returns the proportional memory of a container's processes, in KiB. The test's init and shells are not part of the profiler.
func memoryOf(b *testing.B, pid int) (kib float64) {
	b.Helper()
	for _, process := range namespaceOf(b, pid) {
		name, err := os.ReadFile(process + "/comm")
		if err == nil && !slices.Contains([]string{"sh", "dash", "bash", "sleep", "native.test"}, strings.TrimSpace(string(name))) {
			kib += float64(field(b, process+"/smaps_rollup", "Pss:"))
		}
	}
	require.Positive(b, kib)
	return kib
}

// field returns the number behind a word in a file of /proc.
func field(b *testing.B, path, word string) int64 {
	b.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(b, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, word); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(b, err)
			return n
		}
	}
	require.Fail(b, "missing field", "%s in %s", word, path)
	return 0
}
