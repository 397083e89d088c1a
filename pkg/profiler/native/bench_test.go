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
)

// asTimer has this program measure, in a container, how long executing a program takes with and without the library.
const asTimer = "NATIVE_TEST_TIMER"

// BenchmarkExec_NoMatch_OverNone compares pairs of executions in the same container, of which one has the library. It reports the median
// difference: what the loader takes for one library more, and reading and matching the plan.
func BenchmarkExec_NoMatch_OverNone(b *testing.B) {
	c := newContainer(b, nil)
	b.ReportMetric(0, "ns/op")
	own, err := os.ReadFile(os.Args[0])
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(c.Work, "timer"), own, 0o755))
	command := c.command(b, "/run/work/timer")
	command.Env = append(command.Env, asTimer+"="+strconv.Itoa(1000))
	output, err := command.CombinedOutput()
	require.NoError(b, err, string(output))
	fields := strings.Fields(string(output))
	require.Len(b, fields, 2, string(output))
	for i, unit := range []string{"µs/none", "µs/over-none"} {
		value, err := strconv.ParseFloat(fields[i], 64)
		require.NoError(b, err)
		b.ReportMetric(value, unit)
	}
}

// BenchmarkStart_OverReady reports what a profiled process waits for beside the profiler: from its own execution until the program runs, less
// what the profiler takes to be ready. The profiler is one that takes next to nothing.
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

// numbers are the lines of a file.
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

// timePairs prints the median time of an execution without the library and the median difference of the pairs, in microseconds.
func timePairs(pairs string) error {
	count, err := strconv.Atoi(pairs)
	if err != nil {
		return err
	}
	const list = "/etc/ld.so.preload"
	with, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	var none, over []float64
	for i := range count + 50 {
		var times [2]float64 // without, with
		for j := range 2 {
			k := (i + j) % 2 // each is the first of a pair as often
			if err := os.WriteFile(list, with[:k*len(with)], 0o644); err != nil {
				return err
			}
			if times[k], err = timeOne(); err != nil {
				return err
			}
		}
		if i >= 50 {
			none, over = append(none, times[0]), append(over, times[1]-times[0])
		}
	}
	slices.Sort(none)
	slices.Sort(over)
	fmt.Printf("%.1f %.1f\n", none[count/2], over[count/2])
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
