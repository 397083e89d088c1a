package bench

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// problems joins the errors of the rows.
func problems(rows ...Row) error {
	var failed []error
	for _, r := range rows {
		failed = append(failed, r.Problem())
	}
	return errors.Join(failed...)
}

func TestRow_CountOverBudget_Fails(t *testing.T) {
	t.Parallel()
	over := Row{Name: "NVML calls", Count: 2, Budget: AtMost(1)}
	assert.EqualError(t, over.Problem(), "NVML calls: 2, the budget is ≤ 1")
	assert.EqualError(t, Row{Name: "files", Count: 2, Budget: Exactly(3)}.Problem(), "files: 2, the budget is = 3")
	assert.EqualError(t, Row{Name: "peak", Count: 2 << 20, Bytes: true, Budget: AtMost(1 << 20)}.Problem(), "peak: 2.0 MiB, the budget is ≤ 1.0 MiB")
	for _, within := range []Row{
		{Count: 1, Budget: AtMost(1)}, {Budget: AtMost(0)}, {Count: 3, Budget: Exactly(3)}, {Count: 99},
	} {
		assert.NoError(t, within.Problem(), "%+v", within)
	}

	r := Report{}
	r.Add("operations for one claim", "", over, Row{Name: "programs run", Budget: AtMost(0)})
	r.Add("restart", "", Row{Name: "API writes", Count: 1, Budget: AtMost(0)})
	assert.EqualError(t, r.Problems(), "operations for one claim: NVML calls: 2, the budget is ≤ 1\nrestart: API writes: 1, the budget is ≤ 0")
	assert.Contains(t, table(t, r), "| NVML calls | 2 | ≤ 1, asserted, **exceeded** |")
}

func TestRow_TimeOverBudget_PrintedNotFailing(t *testing.T) {
	t.Parallel()
	slow, fast := Samples{time.Second, time.Second}, Samples{time.Millisecond, time.Second}
	rows := []Row{
		{Name: "p50 over", Samples: slow, Budget: Within(15 * time.Millisecond)},
		{Name: "p50 within", Samples: fast, Budget: Within(15 * time.Millisecond)},
		{Name: "p99 over", Samples: fast, Budget: Budget{Limit: int(2 * time.Millisecond), Tail: true, kind: printed}},
		{Name: "ratio over", Samples: slow, Base: fast, Budget: Ratio(1)},
		{Name: "ratio within", Samples: fast, Base: slow, Budget: Ratio(1)},
		{Name: "p99 ratio over", Samples: fast, Base: slow, Budget: RatioAtP99(.2)},
		{Name: "p99 ratio within", Samples: fast, Base: Samples{time.Millisecond, 10 * time.Second}, Budget: RatioAtP99(.2)},
		{Name: "memory over", Count: 50 << 20, Bytes: true, Budget: InMemory(44 << 20)},
		{Name: "memory beside", Count: 44 << 20, BaseCount: 88 << 20, Bytes: true, Budget: Ratio(1)},
	}
	r := Report{}
	r.Add("time until the kubelet gets its answer", "other driver", rows...)
	assert.NoError(t, r.Problems())
	text := table(t, r)
	for _, want := range []string{
		"| time until the kubelet gets its answer | p50, or count | p99 | other driver | ratio | budget |",
		"| p50 over (2) | 1000 ms | 1000 ms |  |  | ≤ 15.0 ms, **exceeded** |",
		"| p50 within (2) | 1.00 ms | 1000 ms |  |  | ≤ 15.0 ms |",
		"| p99 over (2) | 1.00 ms | 1000 ms |  |  | ≤ 2.00 ms at p99, **exceeded** |",
		"| ratio over (2) | 1000 ms | 1000 ms | 1.00 ms | 1000.00 | ≤ 1.00, **exceeded** |",
		"| ratio within (2) | 1.00 ms | 1000 ms | 1000 ms | 0.00 | ≤ 1.00 |",
		"| p99 ratio over (2) | 1.00 ms | 1000 ms | 1000 ms at p99 | 1.00 | ≤ 0.20 at p99, **exceeded** |",
		"| p99 ratio within (2) | 1.00 ms | 1000 ms | 10000 ms at p99 | 0.10 | ≤ 0.20 at p99 |",
		"| memory over | 50.0 MiB |  |  |  | ≤ 44.0 MiB, **exceeded** |",
		"| memory beside | 44.0 MiB |  | 88.0 MiB | 0.50 | ≤ 1.00 |",
	} {
		assert.Contains(t, text, want)
	}
}

func TestReport_Sections_AreTablesWithoutEmptyColumns(t *testing.T) {
	t.Parallel()
	r := Report{Where: "here"}
	r.Add("waits", "floor", Row{Name: "prepare", Samples: Samples{1, 2}, Base: Samples{1}})
	r.Add("counts", "", claimLimits.rows(1, Costs{})...)
	r.Add("waits", "floor", Row{Name: "unprepare", Samples: Samples{1}})
	require.Len(t, r.Sections, 2, "a title stands for one table")
	text := table(t, r)
	assert.True(t, strings.HasPrefix(text, "here\n\n| waits |"))
	for one := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(one, "\n")
		for _, line := range lines {
			assert.Equal(t, strings.Count(lines[0], "|"), strings.Count(line, "|"), line)
		}
	}
	assert.Contains(t, text, "\n| counts | p50, or count | budget |\n|---|--:|--:|\n| prepare: durable writes | 0 (0 + 0 fsyncs")
}

// table renders the report.
func table(t *testing.T, r Report) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, r.Markdown(&b))
	return b.String()
}
