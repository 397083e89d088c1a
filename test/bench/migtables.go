package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// slices tells how long the kubelet waits for one slice, and for what.
func (r *Report) slices(b *strings.Builder) {
	m := r.MIG
	fmt.Fprintf(b, "\n| one slice of a GPU, the driver told to take %d ms to make and %d ms to remove it | p50 | p99 | our share, p50 | p99 | budget |\n|---|--:|--:|--:|--:|--:|\n",
		makingTime.Milliseconds(), removingTime.Milliseconds())
	making, removing := m.Driver.Prepare.P50(), m.Driver.Unprepare.P50()
	for _, alone := range []struct {
		what string
		took Samples
	}{{"the driver alone, to make it", m.Driver.Prepare}, {"the driver alone, to remove it", m.Driver.Unprepare}} {
		fmt.Fprintf(b, "| %s (%d) | %s | %s |  |  |  |\n", alone.what, len(alone.took), milliseconds(alone.took.P50()), milliseconds(alone.took.P99()))
	}
	row := func(what string, s Samples, driver time.Duration) {
		share := s.without(driver)
		fmt.Fprintf(b, "| %s (%d) | %s | %s | %s | %s | %s |\n", what, len(s), milliseconds(s.P50()), milliseconds(s.P99()),
			milliseconds(share.P50()), milliseconds(share.P99()), within(share.P50(), sliceBudget))
	}
	row("prepare, on a GPU without others", m.Alone.Prepare, making)
	row(fmt.Sprintf("prepare, beside %d others", m.PerGPU-1), m.Beside.Prepare, making)
	row("unprepare, on a GPU without others", m.Alone.Unprepare, removing)
	row(fmt.Sprintf("unprepare, beside %d others", m.PerGPU-1), m.Beside.Unprepare, removing)
	r.shares(b)
}

// shares tells where our share goes: what is known to be needed, at the price that it has on this machine, and the rest.
func (r *Report) shares(b *strings.Builder) {
	m, f := r.MIG, r.MIG.Paced
	fmt.Fprintf(b, "\n| where our share goes | prepare | prepare beside %d | unprepare | unprepare beside %d |\n|---|--:|--:|--:|--:|\n", m.PerGPU-1, m.PerGPU-1)
	type column struct {
		share time.Duration
		cost  Cost
	}
	columns := []column{
		{m.Alone.Prepare.without(m.Driver.Prepare.P50()).P50(), m.Slice.Prepare}, {m.Beside.Prepare.without(m.Driver.Prepare.P50()).P50(), m.Last.Prepare},
		{m.Alone.Unprepare.without(m.Driver.Unprepare.P50()).P50(), m.Slice.Unprepare}, {m.Beside.Unprepare.without(m.Driver.Unprepare.P50()).P50(), m.Last.Unprepare},
	}
	row := func(what string, of func(column) time.Duration) {
		fmt.Fprintf(b, "| %s |", what)
		for _, c := range columns {
			fmt.Fprintf(b, " %s |", milliseconds(of(c)))
		}
		b.WriteByte('\n')
	}
	get := func(c column) time.Duration { return time.Duration(c.cost.Reads) * f.Get.P50() }
	durable := func(c column) time.Duration { return time.Duration(c.cost.Durable()) * f.Durable.P50() }
	calls := func(c column) time.Duration { return time.Duration(c.cost.NVML) * m.Call.P50() }
	row("our share, p50", func(c column) time.Duration { return c.share })
	row("the call of the kubelet", func(column) time.Duration { return r.Floor.Call.P50() })
	row("the GET of the claim, when the last is so long ago", get)
	row(fmt.Sprintf("durable writes, %s each when the last is so long ago", milliseconds(f.Durable.P50())), durable)
	row(fmt.Sprintf("NVML calls, %s each to the simulated driver and back", milliseconds(m.Call.P50())), calls)
	row("the rest", func(c column) time.Duration { return c.share - r.Floor.Call.P50() - get(c) - durable(c) - calls(c) })
}

// atOnce tells how well slices of different GPUs are made side by side.
func (r *Report) atOnce(b *strings.Builder) {
	m := r.MIG
	gpus := m.Slices / max(m.PerGPU, 1)
	fmt.Fprintf(b, "\n| %d slices at once, a call each: %d GPUs × %d | prepare | unprepare | budget |\n|---|--:|--:|--:|\n", m.Slices, gpus, m.PerGPU)
	making, removing := time.Duration(m.PerGPU)*makingTime, time.Duration(m.PerGPU)*removingTime
	fmt.Fprintf(b, "| the driver's own time on each GPU | %s | %s |  |\n", milliseconds(making), milliseconds(removing))
	last := m.AtOnce.Last
	ratio := func(took, driver time.Duration) string {
		return fmt.Sprintf("%.2f", float64(took)/float64(max(driver, 1)))
	}
	for _, row := range []struct {
		what string
		of   func(Samples) time.Duration
	}{
		{fmt.Sprintf("until the last answer, p50 of %d", len(last.Prepare)), Samples.P50}, {"until the last answer, slowest", Samples.P99},
	} {
		fmt.Fprintf(b, "| %s | %s | %s |  |\n", row.what, milliseconds(row.of(last.Prepare)), milliseconds(row.of(last.Unprepare)))
	}
	prepare, unprepare := last.Prepare.P50(), last.Unprepare.P50()
	budget := fmt.Sprintf("≤ %.1f", makespanBudget)
	if float64(prepare) > makespanBudget*float64(making) || float64(unprepare) > makespanBudget*float64(removing) {
		budget += ", **exceeded**"
	}
	fmt.Fprintf(b, "| p50 / the driver's own time | %s | %s | %s |\n", ratio(prepare, making), ratio(unprepare, removing), budget)
	fmt.Fprintf(b, "| CPU time of the plugin, p50 | %s | %s |  |\n", milliseconds(m.AtOnce.CPU.Prepare.P50()), milliseconds(m.AtOnce.CPU.Unprepare.P50()))
}

// sliceCounts are the counts of one claim on GPUs that are offered whole, in turns and in slices.
func (r *Report) sliceCounts(b *strings.Builder) {
	m := r.MIG
	b.WriteString("\n| done for one claim, GPUs offered whole, in turns and in slices, asserted |")
	type column struct {
		what  string
		cost  Cost
		limit Limit
	}
	last := fmt.Sprintf(" beside %d", m.PerGPU-1)
	columns := []column{
		{"prepare a whole GPU", m.Whole.Prepare, WholeLimits.Prepare}, {"unprepare it", m.Whole.Unprepare, WholeLimits.Unprepare},
		{"prepare a share", m.Turns.Cost.Prepare, WholeLimits.Prepare}, {"unprepare it", m.Turns.Cost.Unprepare, WholeLimits.Unprepare},
		{"prepare a slice", m.Slice.Prepare, SliceLimits.Prepare}, {"prepare it" + last, m.Last.Prepare, LastLimits.Prepare},
		{"unprepare a slice", m.Slice.Unprepare, SliceLimits.Unprepare}, {"unprepare it" + last, m.Last.Unprepare, LastLimits.Unprepare},
	}
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.what)
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(columns)) + "\n")
	row := func(what string, of func(Cost) string, limit func(Limit) int) {
		fmt.Fprintf(b, "| %s |", what)
		for _, c := range columns {
			fmt.Fprintf(b, " %s ≤ %d |", of(c.cost), limit(c.limit))
		}
		b.WriteByte('\n')
	}
	number := func(of func(Cost) int) func(Cost) string {
		return func(c Cost) string { return strconv.Itoa(of(c)) }
	}
	row("durable writes (fsyncs of files + of directories)", func(c Cost) string {
		return fmt.Sprintf("%d (%d + %d)", c.Durable(), c.FileSyncs, c.DirSyncs)
	}, func(l Limit) int { return l.Durable })
	row("programs run", number(func(c Cost) int { return c.Programs }), func(l Limit) int { return l.Programs })
	row("NVML calls", number(func(c Cost) int { return c.NVML }), func(l Limit) int { return l.NVML })
	row("API reads before the answer", number(func(c Cost) int { return c.Reads }), func(l Limit) int { return l.Reads })
	row("API writes before the answer", number(func(c Cost) int { return c.Writes }), func(l Limit) int { return l.Writes })
}
