package native

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/pattern"
)

// asTimer makes this program measure, in a container, how long executing a program takes with and without the library.
const asTimer = "NATIVE_TEST_TIMER"

// emptyLibrary is the smallest library that a loader can load: a function that returns.
const emptyLibrary = `static void returns(void) {}
__attribute__((section(".init_array"), used)) static void (*const constructor)(void) = returns;
`

// BenchmarkExec_NoMatch_OverNone compares executions in the same container, without the library, with it, and with an empty library. It
// reports the median differences: the loader's time for one more library, and that time with reading and matching the plan.
func BenchmarkExec_NoMatch_OverNone(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	times := timesOf(b, newContainer(b, nil))
	for i, unit := range []string{"µs/none", "µs/empty-over-none", "µs/over-none"} {
		b.ReportMetric(times[i], unit)
	}
}

// BenchmarkExec_Disarmed_OverNone reports the median difference of a claim that is armed on demand, and is not armed.
func BenchmarkExec_Disarmed_OverNone(b *testing.B) {
	c := newContainer(b, nil)
	all, err := pattern.Compile("", pattern.RE2)
	require.NoError(b, err)
	disarmed, err := pattern.Rules{Target: pattern.Argv0, Excludes: []*pattern.Table{all}}.Encode()
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(c.Plan, "match"), disarmed, 0o644))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(timesOf(b, c)[2], "µs/disarmed-over-none")
}

// timesOf returns the numbers of timePairs in a container.
func timesOf(b *testing.B, c *container) (numbers []float64) {
	b.Helper()
	own, err := os.ReadFile(os.Args[0])
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(c.Work, "timer"), own, 0o755))
	build := exec.Command("gcc", "-x", "c", "-", "-Os", "-fPIC", "-nostdlib", "-shared", "-Wl,-z,now,-z,norelro,-z,noseparate-code,--hash-style=gnu,-s",
		"-o", filepath.Join(c.Work, "empty.so"))
	build.Stdin = strings.NewReader(emptyLibrary)
	built, err := build.CombinedOutput()
	require.NoError(b, err, string(built))
	command := c.command(b, "/run/work/timer")
	command.Env = append(command.Env, asTimer+"="+strconv.Itoa(1000))
	output, err := command.CombinedOutput()
	require.NoError(b, err, string(output))
	for field := range strings.FieldsSeq(string(output)) {
		value, err := strconv.ParseFloat(field, 64)
		require.NoError(b, err)
		numbers = append(numbers, value)
	}
	require.Len(b, numbers, 3, string(output))
	return numbers
}

// BenchmarkStart_OverReady reports the delay of a profiled process in addition to the profiler's start: from its own execution until the
// program runs, less the time until the profiler is ready. The profiler is a dummy that takes almost no time.
func BenchmarkStart_OverReady(b *testing.B) {
	const starts = 40
	c := newContainer(b, nil)
	code, output := c.run(b, c.outer(b, fmt.Sprintf(`
for i in $(seq %d); do
	date +%%s%%N >>/run/work/before
	sh -c 'date +%%s%%N >>/run/work/runs' profiled
done`, starts))...)
	require.Zero(b, code, output)
	before, runs, ready := numbers(b, filepath.Join(c.Work, "before")), numbers(b, filepath.Join(c.Work, "runs")), []int64{}
	notes := c.notes(b)
	slices.SortFunc(notes, func(a, b note) int { return strings.Compare(a["started"], b["started"]) })
	for _, n := range notes {
		took, err := strconv.ParseInt(n["ready"], 10, 64)
		require.NoError(b, err)
		ready = append(ready, took)
	}
	require.Len(b, before, starts)
	require.Len(b, runs, starts)
	require.Len(b, ready, starts)
	var over []float64
	for i := range starts {
		over = append(over, float64(runs[i]-before[i]-ready[i])/1e6)
	}
	slices.Sort(over)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(over[starts/2], "ms/over-ready")
}

// numbers parses the lines of a file.
func numbers(b *testing.B, path string) (all []int64) {
	b.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(b, err)
	for line := range strings.Lines(string(raw)) {
		n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		require.NoError(b, err)
		all = append(all, n)
	}
	return all
}

// timePairs prints the median time of an execution without a library, and the median differences of an execution with an empty library and
// with ours, in microseconds.
func timePairs(pairs string) error {
	count, err := strconv.Atoi(pairs)
	if err != nil {
		return err
	}
	const list = "/etc/ld.so.preload"
	own, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	lists := [][]byte{nil, []byte("/run/work/empty.so\n"), own}
	times := make([][]float64, len(lists))
	for i := range count + 50 {
		var took [3]float64
		for j := range lists {
			k := (i + j) % len(lists) // each runs first equally often
			if err := os.WriteFile(list, lists[k], 0o644); err != nil {
				return err
			}
			if took[k], err = timeOne(); err != nil {
				return err
			}
		}
		if i >= 50 {
			times[0], times[1], times[2] = append(times[0], took[0]), append(times[1], took[1]-took[0]), append(times[2], took[2]-took[0])
		}
	}
	for _, of := range times {
		slices.Sort(of)
		fmt.Printf("%.1f ", of[count/2])
	}
	return nil
}

func timeOne() (microseconds float64, err error) {
	start := time.Now()
	process, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Env: os.Environ()})
	if err != nil {
		return 0, err
	}
	_, err = process.Wait()
	return float64(time.Since(start).Nanoseconds()) / 1000, err
}
