package bench

import (
	"context"
	"fmt"
	"strings"
)

// Turns compares a claim for a whole GPU with one for a share of a GPU that several claims use in turns, on GPUs that are offered in
// both ways, and in slices.
type Turns struct {
	Whole, Share Latency
	// Cost is that of a share.
	Cost Costs
}

// How much is measured of shares: they take turns with whole GPUs, so that both have the machine as it is at the time.
const (
	turnsRounds = 4
	turnsEach   = 16
)

// turns measures shares while no GPU is in MIG mode.
func (m *slicer) turns(ctx context.Context) (err error) {
	if m.Turns.Cost, err = m.cost(ctx, m.shared); err != nil {
		return err
	}
	for range turnsRounds {
		for _, one := range []struct {
			devices []Device
			into    *Latency
		}{{m.whole, &m.Turns.Whole}, {m.shared, &m.Turns.Share}} {
			claims, err := m.claims.Make(ctx, slicesWarmUp+turnsEach, one.devices)
			if err != nil {
				return err
			}
			took, err := OneByOne(ctx, m.plugin.Plugin, m.claims, claims, len(one.devices), slicesWarmUp)
			if err != nil {
				return err
			}
			one.into.add(took.Prepare, took.Unprepare)
		}
	}
	return nil
}

// turns tells what a share takes beside what a whole GPU takes.
func (r *Report) turns(b *strings.Builder) {
	t := r.MIG.Turns
	b.WriteString("\n| one claim at a time, GPUs offered whole, in turns and in slices | prepare, p50 | p99 | unprepare, p50 | p99 |\n|---|--:|--:|--:|--:|\n")
	for _, row := range []struct {
		what string
		took Latency
	}{{"a whole GPU", t.Whole}, {"a share of a GPU", t.Share}} {
		fmt.Fprintf(b, "| %s (%d) | %s | %s | %s | %s |\n", row.what, len(row.took.Prepare), milliseconds(row.took.Prepare.P50()),
			milliseconds(row.took.Prepare.P99()), milliseconds(row.took.Unprepare.P50()), milliseconds(row.took.Unprepare.P99()))
	}
	ratio := func(share, whole Samples) string {
		return fmt.Sprintf("%.2f", float64(share.P50())/float64(max(whole.P50(), 1)))
	}
	fmt.Fprintf(b, "| share / whole | %s |  | %s |  |\n", ratio(t.Share.Prepare, t.Whole.Prepare), ratio(t.Share.Unprepare, t.Whole.Unprepare))
}
