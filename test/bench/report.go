package bench

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Report is everything that one run found out.
type Report struct {
	// Machine, Load and Versions say where: hardware and kernel, how busy it was, what was measured.
	Machine, Load, Versions string
	// Floor is what the machine takes for what cannot be avoided.
	Floor Floor
	// Single, Parallel and Crowded are the waits of the kubelet: one call at a time, one per GPU at once, and one at a time
	// beside claims that stay prepared.
	Single, Parallel, Crowded Latency
	// Costs are the counts, each the worst seen.
	Costs Costs
	// Process is what the plugin itself takes.
	Process Process
}

// Process is what the plugin's process takes.
type Process struct {
	// Idle is before the first claim, Used after all of them.
	Idle, Used Memory
	// FirstStart is from birth to the first answer on a new node, Restart the same beside claims that are prepared.
	FirstStart time.Duration
	Restart    Samples
	// RestartWrites are the API writes of the restart that wrote most.
	RestartWrites int
	// Wiped is how long slices stay away that others deleted.
	Wiped Samples
}

// peersMeasured is when the figures of other drivers were taken, on the same kind of node, with the same calls.
const peersMeasured = "2026-11-20"

// The budgets of times and memory. They are no assertions: they depend on the machine, and on what else it does.
const (
	parallelPrepareBudget   = 15 * time.Millisecond
	parallelUnprepareBudget = 6 * time.Millisecond
	restartBudget           = 300 * time.Millisecond
	memoryBudget            = 40 << 20
)

// Crowd is how many other claims are prepared while Crowded is measured.
const Crowd = 100

// Problems returns the counts that exceed their budgets, nil when none does.
func (r *Report) Problems() error {
	var problems []error
	if over := PrepareLimit.Exceeded(r.Costs.Prepare); over != "" {
		problems = append(problems, fmt.Errorf("preparing a claim takes %s", over))
	}
	if over := UnprepareLimit.Exceeded(r.Costs.Unprepare); over != "" {
		problems = append(problems, fmt.Errorf("unpreparing a claim takes %s", over))
	}
	if n := r.Process.RestartWrites; n > 0 {
		problems = append(problems, fmt.Errorf("a restart without changes takes %d API writes, not 0", n))
	}
	return errors.Join(problems...)
}

// Markdown writes the report as tables.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %s; load %s at start.\n", r.Versions, r.Machine, r.Load)
	r.floor(&b)
	r.latency(&b)
	r.counts(&b)
	r.process(&b)
	fmt.Fprintf(&b, "\n¹ Other drivers: measured on %s on the same kind of node, with the same calls.\n", peersMeasured)
	_, err := io.WriteString(w, b.String())
	return err
}

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
	row(fmt.Sprintf("prepare one claim beside %d others", Crowd), r.Crowded.Prepare, ratio(r.Crowded.Prepare), "", "", "")
	row(fmt.Sprintf("unprepare one claim beside %d others", Crowd), r.Crowded.Unprepare, "", "", "", "")
	row("prepare 8 at once on 8 GPUs, until the last answer", r.Parallel.Prepare, "", within(r.Parallel.Prepare.P50(), parallelPrepareBudget), "22 ms", "620 ms")
	row("unprepare 8 at once, until the last answer", r.Parallel.Unprepare, "", within(r.Parallel.Unprepare.P50(), parallelUnprepareBudget), "8 ms", "721 ms")
}

// within prints a budget, and that it is exceeded.
func within(got, budget time.Duration) string {
	if got > budget {
		return fmt.Sprintf("≤ %d ms, **exceeded**", budget.Milliseconds())
	}
	return fmt.Sprintf("≤ %d ms", budget.Milliseconds())
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
	row("API reads before the answer", p.Reads, PrepareLimit.Reads, u.Reads, UnprepareLimit.Reads)
	row("API writes before the answer", p.Writes, PrepareLimit.Writes, u.Writes, UnprepareLimit.Writes)
	fmt.Fprintf(b, "| API calls after the answer (the claim's status) | %d | | %d | |\n", p.Later, u.Later)
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
	row(fmt.Sprintf("start to first answer, 8 claims prepared (p50 of %d, NVML init included)", len(p.Restart)), milliseconds(p.Restart.P50()),
		within(p.Restart.P50(), restartBudget)+" + NVML init", "", "")
	row("API writes of a restart without changes", fmt.Sprint(p.RestartWrites), "0", "", "")
	row(fmt.Sprintf("wiped ResourceSlices are back after (p50 of %d)", len(p.Wiped)), milliseconds(p.Wiped.P50()), "", "", "")
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
