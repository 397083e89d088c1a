package allocation

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/podresources"
)

// view contains everything that is known at one time.
type view struct {
	allocations *metrics.Allocations
	wants       map[gpu.UUID][]Want
	// exposed are the UIDs of prepared claims that expose their metrics in their containers, in order.
	exposed []string
}

// newView joins the sources. The records are sorted by claim UID and their results stay in their order.
func newView(found map[string]*checkpoint.Record, listed []podresources.Use, containers map[name]container, labels map[string][]string) *view {
	v := &view{allocations: &metrics.Allocations{}, wants: map[gpu.UUID][]Want{}}
	taken := exclusivelyPrepared(found)
	for _, uid := range slices.Sorted(maps.Keys(found)) {
		record := found[uid]
		var uses []podresources.Use
		if record.State == checkpoint.Done { // kubelets unprepare claims after their containers have exited
			uses = ofOne(listed, uid)
		}
		for i := range record.Results {
			result := &record.Results[i]
			if result.Admin || !result.Type.UsesGPU() || record.State != checkpoint.Done && taken[deviceOf(result)] {
				continue
			}
			allocation := newAllocation(record, result, uses, containers)
			v.allocations.List = append(v.allocations.List, allocation)
			v.label(&allocation, labels)
			if record.State == checkpoint.Done {
				v.want(&allocation)
			}
		}
	}
	return v
}

// want adds the requests of a prepared claim.
func (v *view) want(a *metrics.Allocation) {
	v.wants[a.GPU] = append(v.wants[a.GPU], Want{MIG: a.MIG, Sets: a.Options.Sets, Interval: a.Options.Interval, Claim: a.ClaimUID})
	if a.Options.ExposeInContainer && !slices.Contains(v.exposed, a.ClaimUID) {
		v.exposed = append(v.exposed, a.ClaimUID)
	}
}

// label adds the known labels of the pods of an allocation.
func (v *view) label(a *metrics.Allocation, labels map[string][]string) {
	for _, c := range a.Containers {
		if values := labels[c.PodUID]; values != nil {
			if v.allocations.PodLabels == nil {
				v.allocations.PodLabels = map[string][]string{}
			}
			v.allocations.PodLabels[c.PodUID] = values
		}
	}
}

// device identifies a device that one claim can use exclusively.
type device struct{ pool, name string }

func deviceOf(r *checkpoint.Result) device { return device{r.Pool, r.Device} }

// exclusivelyPrepared are the devices that prepared claims use exclusively. The record of an earlier claim of such a device was read before
// it was removed.
func exclusivelyPrepared(found map[string]*checkpoint.Record) map[device]bool {
	taken := map[device]bool{}
	for _, record := range found {
		for i := range record.Results {
			if r := &record.Results[i]; record.State == checkpoint.Done && r.ShareID == "" && !r.Admin {
				taken[deviceOf(r)] = true
			}
		}
	}
	return taken
}

// metricsKind is the kind of the extension whose data the exporter reads.
const metricsKind = "metrics"

func newAllocation(record *checkpoint.Record, r *checkpoint.Result, uses []podresources.Use, containers map[name]container) metrics.Allocation {
	a := metrics.Allocation{
		Namespace: record.Claim.Namespace, Claim: record.Claim.Name, ClaimUID: record.Claim.UID,
		Request: r.Request, Pool: r.Pool, Device: r.Device, ShareID: r.ShareID, Type: r.Type, GPU: r.GPUUUID,
		ThroughServer: r.ThroughServer(),
	}
	if r.MIG != nil {
		a.MIG = gpu.UUID(r.MIG.Identity.UUID)
	}
	// Options that cannot be parsed are ignored; the plugin refuses them.
	if options, err := checkpoint.ExtensionOf[gpu.MetricsOptions](r.Extensions, metricsKind); err == nil && options != nil {
		a.Options = *options
	}
	for _, use := range uses {
		if hasResult(use, r) {
			n := name{use.Namespace, use.Pod, use.Container}
			running := containers[n]
			a.Containers = append(a.Containers, metrics.Container{Namespace: n.namespace, Pod: n.pod, Name: n.container, PodUID: running.podUID, ID: running.id})
		}
	}
	slices.SortFunc(a.Containers, func(a, b metrics.Container) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name))
	})
	a.Containers = slices.Compact(a.Containers)
	return a
}
