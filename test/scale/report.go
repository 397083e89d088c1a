package scale

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"time"
)

// Report contains the results of a run; parts that were not measured are empty.
type Report struct {
	// Load is the load average before the tables were measured; rows of Throughput have their own.
	Load         string
	Filter       []FilterRow
	Sets         []JointSets
	Packing      []Packing
	Utilizations []UtilizationRow
	Throughput   []ThroughputRow
}

// Tables measures everything that needs no cluster: Filter, joint sets, packing and utilization.
func (r *Report) Tables(ctx context.Context, samples int) (err error) {
	layouts := Layouts()
	r.Load = loadAverage()
	if r.Filter, err = Filter(ctx, layouts, samples); err != nil {
		return err
	}
	if r.Sets, err = Sets(ctx, layouts); err != nil {
		return err
	}
	if r.Packing, err = Pack(ctx, layouts); err != nil {
		return err
	}
	r.Utilizations, err = Utilizations(ctx, layouts)
	return err
}

// Write prints Markdown tables, with ratios to the times of NVIDIA's model in the same run.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "%d cores, load %s, %s\n", runtime.NumCPU(), cmp.Or(r.Load, loadAverage()), time.Now().UTC().Format(time.DateOnly))
	r.filter(w)
	r.counts(w)
	r.throughput(w)
}

// comparedWith returns the layout with which a layout is compared; a model is compared with itself.
func comparedWith(layout string) string {
	if l, err := LayoutByName(layout); err == nil && l.Model != "" {
		return l.Model
	}
	return layout
}

// comparable returns the request for the same device in NVIDIA's layouts.
func comparable(a RequestKind) RequestKind {
	switch a {
	case RequestProfileClass, RequestProfileCapacity:
		return RequestProfile
	case RequestMemoryCapacity:
		return RequestMemory
	case RequestGPU, RequestProfile, RequestMemory:
	}
	return a
}

func (r *Report) filter(w io.Writer) {
	if len(r.Filter) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| Filter of one node | requested | p50 | p99 | CEL expressions | NVIDIA's layout, p50 | its CEL expressions | p50 / NVIDIA's |\n|---|---|--:|--:|--:|--:|--:|--:|\n")
	find := func(layout string, a RequestKind, s State) *FilterRow {
		for i := range r.Filter {
			if row := &r.Filter[i]; row.Layout == layout && row.RequestKind == a && row.State == s {
				return row
			}
		}
		return nil
	}
	for i := range r.Filter {
		row := &r.Filter[i]
		other := find(comparedWith(row.Layout), comparable(row.RequestKind), row.State)
		if other == nil || comparedWith(row.Layout) == row.Layout {
			continue
		}
		fmt.Fprintf(w, "| %s, %s | %s | %s | %s | %d | %s | %d | %.2f |\n", row.Layout, row.State, row.RequestKind, millis(row.P(.5)), millis(row.P(.99)),
			row.Evaluations, millis(other.P(.5)), other.Evaluations, float64(row.P(.5))/float64(other.P(.5)))
	}
}

func (r *Report) counts(w io.Writer) {
	if len(r.Sets) > 0 {
		fmt.Fprintf(w, "\n| sets of MIG devices of one GPU | devices | counters and hardware admit | only counters | only hardware |\n|---|--:|--:|--:|--:|\n")
	}
	for _, s := range r.Sets {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d |\n", s.Layout, s.Devices, s.Both, s.OnlyCounters, s.OnlyHardware)
	}
	if len(r.Packing) > 0 {
		fmt.Fprintf(w, "\n| jobs placed on one GPU before the first has to wait | in published order | in order of names |\n|---|--:|--:|\n")
	}
	for _, p := range r.Packing {
		fmt.Fprintf(w, "| %s | %.2f | %.2f |\n", p.Layout, p.Published, p.ByName)
	}
	if len(r.Utilizations) > 0 {
		fmt.Fprintf(w, "\n| utilization that Cluster Autoscaler reads | allocated | |\n|---|---|--:|\n")
	}
	for _, u := range r.Utilizations {
		fmt.Fprintf(w, "| %s | %s | %.3f |\n", u.Layout, u.What, u.Value)
	}
}

func (r *Report) throughput(w io.Writer) {
	if len(r.Throughput) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| pods placed | nodes | requested | state | placed, of | pods/s | / NVIDIA's | scheduler CPU a pod | API server CPU a pod | scheduler memory | API server memory | load |\n"+
		"|---|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for i := range r.Throughput {
		row := &r.Throughput[i]
		ratio := ""
		for j := range r.Throughput {
			other := &r.Throughput[j]
			same := other.Nodes == row.Nodes && other.Phase.Full == row.Phase.Full && other.Phase.RequestKind == comparable(row.Phase.RequestKind)
			if same && other.Layout == comparedWith(row.Layout) && other.PodsPerSec > 0 {
				ratio = fmt.Sprintf("%.2f", row.PodsPerSec/other.PodsPerSec)
			}
		}
		state := "empty"
		if row.Phase.Full {
			state = "90 % full"
		}
		fmt.Fprintf(w, "| %s | %d | %s | %s | %d, %d | %.1f | %s | %s | %s | %.1f GB | %.1f GB | %s |\n", row.Layout, row.Nodes, row.Phase.RequestKind, state, row.Bound, row.Pods,
			row.PodsPerSec, ratio, millis(row.SchedulerCPU), millis(row.APIServerCPU), float64(row.SchedulerMemory)/1e9, float64(row.APIServerMemory)/1e9, row.Load)
	}
}

func millis(d time.Duration) string { return fmt.Sprintf("%.3g ms", d.Seconds()*1e3) }
