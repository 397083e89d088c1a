package bench

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLimits_CostsOverBudget_EachIsAProblem(t *testing.T) {
	t.Parallel()
	assert.NoError(t, problems(PrepareLimit.rows("prepare", 1, Cost{FileSyncs: 1, DirSyncs: 1, Reads: 1, Later: 9})...))
	assert.EqualError(t, problems(PrepareLimit.rows("prepare", 1, Cost{FileSyncs: 1, DirSyncs: 2, Programs: 1, NVML: 3, Reads: 2, Writes: 1})...),
		"prepare: durable writes: 2, the budget is ≤ 1\nprepare: programs run: 1, the budget is ≤ 0\nprepare: NVML calls: 3, the budget is ≤ 0\n"+
			"prepare: API reads before the answer: 2, the budget is ≤ 1\nprepare: API writes before the answer: 1, the budget is ≤ 0")
}

func TestLimits_ManyClaims_BudgetGrowsWithThem(t *testing.T) {
	t.Parallel()
	within := Costs{Prepare: Cost{FileSyncs: 100, DirSyncs: 60, Reads: 100}, Unprepare: Cost{DirSyncs: 200}}
	assert.NoError(t, problems(claimLimits.rows(100, within)...))
	over := within.most(Costs{Prepare: Cost{Reads: 101}, Unprepare: Cost{Reads: 1}})
	assert.EqualError(t, problems(claimLimits.rows(100, over)...),
		"prepare: API reads before the answer: 101, the budget is ≤ 100\nunprepare: API reads before the answer: 1, the budget is ≤ 0")
}

const straceOutput = `170   1795220136.000100 fsync(8</p/claims/u.json.tmp>) = 0
171   1795220136.000200 fsync(8</p/claims> <unfinished ...>
strace: Process 180 attached
171   1795220136.000250 <... fsync resumed>) = 0
171   1795220136.500000 fsync(9</p/claims>)       = 0
180   1795220136.600000 execve("/bin/true", ["true"], 0x7ffd /* 9 vars */) = 0
180   1795220136.700000 +++ exited with 0 +++
`

func TestAttribute_Trace_CallsBelongToTheirPeriod(t *testing.T) {
	t.Parallel()
	calls, err := parseTrace(strings.NewReader(straceOutput))
	require.NoError(t, err)
	require.Len(t, calls, 4)
	assert.Equal(t, "fsync", calls[1].Name)
	at := func(microseconds int) time.Time { return time.Unix(1795220136, int64(microseconds)*1000) }
	periods := []period{
		{prepare: true, start: at(0)},
		{prepare: false, start: at(400_000)}, // with its deferred work
	}
	attribute(calls, periods)
	assert.Equal(t, Costs{
		Prepare:   Cost{FileSyncs: 1, DirSyncs: 1},
		Unprepare: Cost{DirSyncs: 1, Programs: 1},
	}, dearest(periods))
}

// The test runs the real strace on a child process.
func TestTrace_Process_NamedCallsSeen(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"strace", "sh", "sync"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	path := t.TempDir() + "/record.json"
	child := exec.CommandContext(t.Context(), "sh", "-c", `read line; sync "$0"; echo done; read line`, path)
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	calls, err := Trace(t.Context(), child.Process.Pid, tracedSyncs, func() error {
		if _, err := in.Write([]byte("go\n")); err != nil {
			return err
		}
		_, err := out.Read(make([]byte, 8))
		return err
	})
	require.NoError(t, in.Close())
	_ = child.Wait() // the shell reads to the end
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		t.Skipf("needs the right to trace: %v", err)
	}
	require.NoError(t, err)
	var names []string
	for _, call := range calls {
		names = append(names, call.Name)
	}
	assert.Equal(t, []string{"execve", "fsync"}, names)
	assert.Contains(t, calls[1].Arguments, "record.json")
}
