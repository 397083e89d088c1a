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
	}
	err := r.Problems()
	require.Error(t, err)
	problems := strings.Split(err.Error(), "\n")
	require.Len(t, problems, 4)
	for i, want := range []string{
		"preparing a claim takes 2 API reads", "unpreparing 100 claims at once takes 201 durable writes",
		"unpreparing 8 claims beside 100 others", "a restart beside 100 prepared claims takes 1 API writes",
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
	assert.Equal(t, 7, tables)
	assert.Contains(t, b.String(), "| files opened to be read or synced | 2 | 2.125 | 0 | 0 |")
	assert.Contains(t, b.String(), "| start to first answer (p50 of 5, NVML init included) | 0.000 ms | 1000 ms, **exceeded** | ≤ 300 ms + NVML init |")
}
