package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func (r *Report) floor(b *strings.Builder) {
	b.WriteString("\n| what no driver can avoid | p50 | p99 |\n|---|--:|--:|\n")
	for _, row := range []struct {
		what    string
		samples Samples
	}{
		{"durable write: 4 KiB written, fsync, rename, fsync of the directory", r.Floor.Durable},
		{"GET of a ResourceClaim", r.Floor.Get},
		{"gRPC call over a unix socket", r.Floor.Call},
	} {
		fmt.Fprintf(b, "| %s | %s | %s |\n", row.what, milliseconds(row.samples.P50()), milliseconds(row.samples.P99()))
	}
	fmt.Fprintf(b, "| **floor of prepare**: one of each | %s | |\n", milliseconds(r.Floor.Prepare()))
}

func (r *Report) latency(b *strings.Builder) {
	b.WriteString("\n| the kubelet waits | p50 | p99 | p50 / floor | budget | dra-example-driver¹ | NVIDIA's driver¹ |\n|---|--:|--:|--:|--:|--:|--:|\n")
	ratio := func(s Samples) string { return fmt.Sprintf("%.1f", float64(s.P50())/float64(r.Floor.Prepare())) }
	row := func(what string, s Samples, ratio, budget, example, nvidia string) {
		fmt.Fprintf(b, "| %s (%d) | %s | %s | %s | %s | %s | %s |\n",
			what, len(s), milliseconds(s.P50()), milliseconds(s.P99()), ratio, budget, example, nvidia)
	}
	row("prepare one claim", r.Single.Prepare, ratio(r.Single.Prepare), "", "3.5 ms", "6.1 ms (183 ms at its default 5 QPS)")
	row("unprepare one claim", r.Single.Unprepare, "", "", "1.4 ms", "15.5 ms")
	alone, crowded := r.Alone.Latency, r.Crowded.Latency
	row("prepare one claim, in turn without others", alone.Prepare, ratio(alone.Prepare), "", "", "")
	row(fmt.Sprintf("… and beside %d others", Crowd), crowded.Prepare, ratio(crowded.Prepare), "", "", "")
	row("unprepare one claim, in turn without others", alone.Unprepare, "", "", "", "")
	row(fmt.Sprintf("… and beside %d others", Crowd), crowded.Unprepare, "", "", "", "")
	row("prepare 8 at once on 8 GPUs, until the last answer", r.Parallel.Prepare, "", within(r.Parallel.Prepare.P50(), parallelPrepareBudget), "22 ms", "620 ms")
	row("unprepare 8 at once, until the last answer", r.Parallel.Unprepare, "", within(r.Parallel.Unprepare.P50(), parallelUnprepareBudget), "8 ms", "721 ms")
	row("a GPU's lock passes from one process to another", r.HandOff, "", within(r.HandOff.P99(), handOffBudget)+" at p99", "", "")
}

// within prints a budget, and that it is exceeded.
func within(got, budget time.Duration) string {
	if got > budget {
		return fmt.Sprintf("≤ %d ms, **exceeded**", budget.Milliseconds())
	}
	return fmt.Sprintf("≤ %d ms", budget.Milliseconds())
}

func (r *Report) burst(b *strings.Builder) {
	fmt.Fprintf(b, "\n| %d claims at once, a call each: 8 whole GPUs, %d with admin access | prepare | budget | unprepare | budget |\n|---|--:|--:|--:|--:|\n",
		BurstClaims, BurstClaims-8)
	row := func(what, prepare, limit, unprepare, unprepareLimit string) {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", what, prepare, limit, unprepare, unprepareLimit)
	}
	both := func(what string, of func(Samples) time.Duration, l Latency) {
		row(what, milliseconds(of(l.Prepare)), "", milliseconds(of(l.Unprepare)), "")
	}
	last, each := r.Burst.Last, r.Burst.Each
	both(fmt.Sprintf("until the last answer, p50 of %d", len(last.Prepare)), Samples.P50, last)
	both("until the last answer, slowest", Samples.P99, last)
	both(fmt.Sprintf("until its own answer, p50 of %d", len(each.Prepare)), Samples.P50, each)
	both("until its own answer, p99", Samples.P99, each)
	both("CPU time of the plugin, p50", Samples.P50, r.Burst.CPU)
	row(fmt.Sprintf("the floor of prepare %d times", BurstClaims), milliseconds(BurstClaims*r.Floor.Prepare()), "", "", "")
	row(fmt.Sprintf("%d GETs at once without a driver, until the last", BurstClaims), milliseconds(r.Burst.Gets.P50()), "", "", "")
	row(fmt.Sprintf("%d durable writes without a driver, 8 at once, until the last", BurstClaims), milliseconds(r.Burst.Durables.P50()), "", "", "")
	p, u := r.Burst.Costs.Prepare, r.Burst.Costs.Unprepare
	pl, ul := PrepareLimit.times(BurstClaims), UnprepareLimit.times(BurstClaims)
	count := func(what string, prepare, limit, unprepare, unprepareLimit int) {
		row(what+", asserted", strconv.Itoa(prepare), fmt.Sprintf("≤ %d", limit), strconv.Itoa(unprepare), fmt.Sprintf("≤ %d", unprepareLimit))
	}
	count("durable writes", p.Durable(), pl.Durable, u.Durable(), ul.Durable)
	count("API reads before the answers", p.Reads, pl.Reads, u.Reads, ul.Reads)
	count("API writes before the answers", p.Writes, pl.Writes, u.Writes, ul.Writes)
}

func (r *Report) counts(b *strings.Builder) {
	b.WriteString("\n| done for one claim, asserted | prepare | budget | unprepare | budget |\n|---|--:|--:|--:|--:|\n")
	p, u := r.Costs.Prepare, r.Costs.Unprepare
	fmt.Fprintf(b, "| durable writes (fsyncs of files + of directories) | %d (%d + %d) | ≤ %d | %d (%d + %d) | ≤ %d |\n",
		p.Durable(), p.FileSyncs, p.DirSyncs, PrepareLimit.Durable, u.Durable(), u.FileSyncs, u.DirSyncs, UnprepareLimit.Durable)
	row := func(what string, prepare, limit, unprepare, unprepareLimit int) {
		fmt.Fprintf(b, "| %s | %d | ≤ %d | %d | ≤ %d |\n", what, prepare, limit, unprepare, unprepareLimit)
	}
	row("programs run", p.Programs, PrepareLimit.Programs, u.Programs, UnprepareLimit.Programs)
	row("NVML calls", p.NVML, PrepareLimit.NVML, u.NVML, UnprepareLimit.NVML)
	row(fmt.Sprintf("API reads before the answer, alone and beside %d others", Crowd), p.Reads, PrepareLimit.Reads, u.Reads, UnprepareLimit.Reads)
	row("API writes before the answer", p.Writes, PrepareLimit.Writes, u.Writes, UnprepareLimit.Writes)
	fmt.Fprintf(b, "| API calls after the answer (the claim's status) | %d | | %d | |\n", p.Later, u.Later)
}

func (r *Report) crowd(b *strings.Builder) {
	fmt.Fprintf(b, "\n| done to files for one claim, asserted to be the same | prepare alone | beside %d | unprepare alone | beside %d |\n|---|--:|--:|--:|--:|\n",
		Crowd, Crowd)
	for _, row := range []struct {
		what string
		of   func(Files) int
	}{
		{"files opened to be read or synced", func(f Files) int { return f.Opened }},
		{"bytes read", func(f Files) int { return f.Bytes }},
		{"directories listed", func(f Files) int { return f.Listed }},
		{"files written, moved or removed", func(f Files) int { return f.Changed }},
		{"files and directories synced", func(f Files) int { return f.Synced }},
	} {
		each := func(of Beside, f Files) string {
			return strconv.FormatFloat(float64(row.of(f))/float64(max(of.Claims, 1)), 'f', -1, 64)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", row.what, each(r.Alone, r.Alone.Prepare), each(r.Crowded, r.Crowded.Prepare),
			each(r.Alone, r.Alone.Unprepare), each(r.Crowded, r.Crowded.Unprepare))
	}
}

// restarts has a column for each restart.
func (r *Report) restarts(b *strings.Builder) {
	columns := func(what, budget string, of func(Restart) string) {
		fmt.Fprintf(b, "| %s |", what)
		for _, restart := range r.Process.Restarts {
			fmt.Fprintf(b, " %s |", of(restart))
		}
		fmt.Fprintf(b, " %s |\n", budget)
	}
	b.WriteByte('\n')
	columns("the plugin is killed and starts again", "budget", func(r Restart) string { return fmt.Sprintf("%d claims prepared", r.Claims) })
	fmt.Fprintf(b, "|---|%s--:|\n", strings.Repeat("--:|", len(r.Process.Restarts)))
	columns(fmt.Sprintf("start to first answer (p50 of %d, NVML init included)", restarts),
		fmt.Sprintf("≤ %d ms + NVML init", restartBudget.Milliseconds()), func(r Restart) string {
			if r.Took.P50() > restartBudget {
				return milliseconds(r.Took.P50()) + ", **exceeded**"
			}
			return milliseconds(r.Took.P50())
		})
	number := func(what, budget string, of func(Restart) int) {
		columns(what, budget, func(r Restart) string { return strconv.Itoa(of(r)) })
	}
	number("API writes, asserted", "0", func(r Restart) int { return r.Writes })
	number("API reads", "", func(r Restart) int { return r.Reads })
	number("reads of records, asserted", fmt.Sprintf("≤ %d a claim", readsPerRecord), func(r Restart) int { return r.Records.Opened })
	number("reads of CDI specs, asserted", fmt.Sprintf("≤ %d a claim", readsPerSpec), func(r Restart) int { return r.Specs.Opened })
	number("listings of their directories, asserted", fmt.Sprintf("≤ %d", restartLists), func(r Restart) int { return r.Records.Listed + r.Specs.Listed })
	number("records and specs written, moved, removed or synced, asserted", "0", func(r Restart) int {
		return r.Records.Changed + r.Specs.Changed + r.Records.Synced + r.Specs.Synced
	})
}

func (r *Report) process(b *strings.Builder) {
	b.WriteString("\n| the plugin's process, 8 GPUs | | budget | dra-example-driver¹ | NVIDIA's driver¹ |\n|---|--:|--:|--:|--:|\n")
	p := r.Process
	row := func(what, got, budget, example, nvidia string) {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", what, got, budget, example, nvidia)
	}
	memory := func(m Memory) string {
		return fmt.Sprintf("%s, of which its own %s", mebibytes(m.Resident), mebibytes(m.Anonymous))
	}
	budget := "< " + mebibytes(memoryBudget)
	if p.Idle.Resident >= memoryBudget {
		budget += ", **exceeded**"
	}
	row("resident memory, idle", memory(p.Idle), budget, "47 MB", "65 MB")
	row("resident memory, after all this", memory(p.Used), "", "", "")
	row("resident memory, most ever", mebibytes(p.Used.Peak), "", "", "")
	row("start to first answer, new node", milliseconds(p.FirstStart), "", "", "")
	row(fmt.Sprintf("wiped ResourceSlices are back after (p50 of %d)", len(p.Wiped)), milliseconds(p.Wiped.P50()), "", "", "")
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
