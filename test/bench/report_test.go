package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProblemsComeFromEveryCount(t *testing.T) {
	t.Parallel()
	assert.NoError(t, (&Report{Single: Latency{Prepare: Samples{time.Hour}}}).Problems(), "times are no problem")
	r := &Report{
		Costs: Costs{Prepare: Cost{Reads: 2}}, Burst: Burst{Costs: Costs{Unprepare: Cost{DirSyncs: 201}}},
		Alone: Beside{Claims: 8}, Crowded: Beside{Claims: 8, Unprepare: Files{Listed: 8}},
		Process: Process{Restarts: []Restart{{Claims: 8}, {Claims: 100, Writes: 1}}},
		MIG: MIG{
			Whole: Costs{Prepare: Cost{NVML: 2}}, Slice: Costs{Prepare: Cost{Programs: 1}}, Last: Costs{Unprepare: Cost{NVML: 1000}},
		},
	}
	err := r.Problems()
	require.Error(t, err)
	problems := strings.Split(err.Error(), "\n")
	require.Len(t, problems, 7)
	for i, want := range []string{
		"preparing a claim takes 2 API reads", "unpreparing 100 claims at once takes 201 durable writes",
		"unpreparing 8 claims beside 100 others", "a restart beside 100 prepared claims takes 1 API writes",
		"preparing a whole GPU that could be cut takes 2 NVML calls", "preparing a slice takes 1 programs run",
		"unpreparing the last slice of a GPU takes 1000 NVML calls",
	} {
		assert.Contains(t, problems[i], want)
	}
}

func TestTablesAreTables(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	r := Report{
		Alone: Beside{Claims: 8, Prepare: Files{Opened: 16}}, Crowded: Beside{Claims: 8, Prepare: Files{Opened: 17}},
		Process: Process{Restarts: []Restart{{Claims: 8}, {Claims: 100, Took: Samples{time.Second}}}},
		MIG: MIG{
			Driver: Latency{Prepare: Samples{300 * time.Millisecond}},
			Alone:  Latency{Prepare: Samples{306 * time.Millisecond}}, Slices: 56, PerGPU: 7,
			AtOnce: Rounds{Last: Latency{Prepare: Samples{2800 * time.Millisecond}, Unprepare: Samples{2205 * time.Millisecond}}},
		},
	}
	require.NoError(t, r.Markdown(&b))
	tables := 0
	for table := range strings.SplitSeq(b.String(), "\n\n") {
		lines := strings.Split(strings.TrimSpace(table), "\n")
		if !strings.HasPrefix(lines[0], "|") {
			continue
		}
		tables++
		require.Greater(t, len(lines), 2, table)
		assert.Contains(t, lines[1], "|---|")
		for _, line := range lines {
			assert.Equal(t, strings.Count(lines[0], "|"), strings.Count(line, "|"), line)
		}
	}
	assert.Equal(t, 14, tables)
	assert.Contains(t, b.String(), "| files opened to be read or synced | 2 | 2.125 | 0 | 0 |")
	assert.Contains(t, b.String(), "| start to first answer (p50 of 5, NVML init included) | 0.000 ms | 1000 ms, **exceeded** | ≤ 300 ms + NVML init |")
	assert.Contains(t, b.String(), "| prepare, on a GPU without others (1) | 306 ms | 306 ms | 6.00 ms | 6.00 ms | ≤ 5 ms, **exceeded** |")
	assert.Contains(t, b.String(), "| p50 / the driver's own time | 1.33 | 1.05 | ≤ 1.3, **exceeded** |")
}
