package metrics_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// exposed is an allocation of a claim with exposeInContainer.
func exposed(a metrics.Allocation) metrics.Allocation {
	a.Options.ExposeInContainer = true
	return a
}

func TestClaim_NothingToExpose_Nil(t *testing.T) {
	g, list := timeSliced()
	j := join(g, list...)
	assert.Nil(t, j.Claim("one-uid"), "the claim does not ask for it")
	assert.Nil(t, j.Claim("unknown"))
	assert.Nil(t, j.Claim(""))
}

func TestClaim_ExclusiveGPU_AllItsValues(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	g.XIDs = []metrics.XID{{Code: 31, GPUInstance: -1, Count: 2, Last: at}}
	other := board(1, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	j := metrics.Join(&metrics.Snapshot{GPUs: []*metrics.GPU{g, other}}, &metrics.Allocations{List: []metrics.Allocation{
		exposed(allocation("one", gpuID(0), "", "", container("one", "main"))),
		allocation("two", gpuID(1), "", "", container("two", "main")),
	}}, metrics.Exporter{Version: "1.2.3"})
	page := j.Claim("one-uid")
	families := parsed(t, page)
	for f := range metrics.FieldCount {
		if row := metrics.Table[f]; row.GPU != "" && row.On(metrics.Hopper) && row.Where != "a vGPU" {
			assert.Contains(t, families, row.GPU)
		}
	}
	assert.InDelta(t, 2, value(t, families, "prism_gpu_xid_errors_total"), 0)
	assert.InDelta(t, 8*gib, value(t, families, usedByContainer, "pod", "one"), 0)
	assertNoOther(t, page, string(gpuID(1)), "two", foreign, unattributed)
}

// TestClaim_XIDsBeforeIt_LeftOut: earlier errors concern the tenant before, and counters begin at 0.
func TestClaim_XIDsBeforeIt_LeftOut(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	before, after := at.Add(-time.Minute), at.Add(time.Minute)
	g.XIDs = []metrics.XID{
		{Code: 31, GPUInstance: -1, Count: 2, Last: before, Times: []time.Time{before, before}},
		{Code: 43, GPUInstance: -1, Count: 3, Last: after, Times: []time.Time{before, before, after}},
	}
	a := exposed(allocation("one", gpuID(0), "", "", container("one", "main")))
	a.Since = at
	families := parsed(t, join(g, a).Claim("one-uid"))
	assert.InDelta(t, 1, value(t, families, "prism_gpu_xid_errors_total"), 0)
	assert.Empty(t, samples(families, "prism_gpu_xid_last_timestamp_seconds", "xid", "31"))
	a.Since = after.Add(time.Second)
	page := join(g, a).Claim("one-uid")
	assert.Zero(t, value(t, parsed(t, page), "prism_gpu_xid_errors_total"))
	assertNoOther(t, page, `xid="`)
}

// assertNoOther fails if a page contains texts of other tenants.
func assertNoOther(t *testing.T, page []byte, texts ...string) {
	t.Helper()
	for _, text := range texts {
		assert.NotContains(t, string(page), text)
	}
}

func TestClaim_Share_NoOtherTenantsNumbers(t *testing.T) {
	g, list := timeSliced(process(1, "one/main", gib, 0.25), process(2, "two/main", 2*gib, 0.5))
	g.XIDs = []metrics.XID{{Code: 31, GPUInstance: -1, Count: 2, Last: at}}
	list[0] = exposed(list[0])
	page := join(g, list...).Claim("one-uid")
	families := parsed(t, page)
	assert.InDelta(t, 1*gib, value(t, families, usedByContainer), 0)
	assert.InDelta(t, 0.25, value(t, families, utilizationByContainer), 0)
	for f := range metrics.FieldCount {
		assert.NotContains(t, families, metrics.Table[f].GPU, "the value is all tenants'")
	}
	assertNoOther(t, page, "two", "s2", foreign, unattributed, "xid")
}

// TestClaim_OnlyShareOfAGPU_NotItsValues: another tenant can get the next share at any time, and may have used one before.
func TestClaim_OnlyShareOfAGPU_NotItsValues(t *testing.T) {
	g, list := timeSliced(process(1, "one/main", gib, 0.25))
	g.XIDs = []metrics.XID{{Code: 31, GPUInstance: -1, Count: 2, Last: at}}
	page := join(g, exposed(list[0])).Claim("one-uid")
	families := parsed(t, page)
	assert.InDelta(t, 1*gib, value(t, families, usedByContainer), 0, "of its own processes, not of the GPU")
	assert.InDelta(t, 0.25, value(t, families, utilizationByContainer), 0)
	for f := range metrics.FieldCount {
		assert.NotContains(t, families, metrics.Table[f].GPU)
	}
	assertNoOther(t, page, foreign, unattributed, "xid")
}

// TestClaim_OneOfTwoMIGDevicesOfAnInstance_NotItsValues: the values concern the whole GPU instance, even while no claim uses the other MIG
// device.
func TestClaim_OneOfTwoMIGDevicesOfAnInstance_NotItsValues(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	g.Identity.MIGMode = true
	g.MIGDevices = []*metrics.MIGDevice{instance(1, 7, metrics.Hopper, gib), instance(2, 7, metrics.Hopper, gib)}
	g.MIGDevices[1].ComputeInstance = 1
	families := parsed(t, join(g, exposed(allocation("one", g.Identity.UUID, migID(1), "", container("one", "main")))).Claim("one-uid"))
	assert.Contains(t, families, "prism_mig_info")
	for f := range metrics.FieldCount {
		assert.NotContains(t, families, metrics.Table[f].MIG)
		assert.NotContains(t, families, metrics.Table[f].GPU)
	}
}

func TestClaim_MIGDevice_OwnDeviceOnly(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	g.Identity.MIGMode = true
	g.MIGDevices = []*metrics.MIGDevice{instance(1, 7, metrics.Hopper, gib), instance(2, 8, metrics.Hopper, 2*gib)}
	page := join(g, exposed(allocation("one", g.Identity.UUID, migID(1), "", container("one", "main"))),
		allocation("two", g.Identity.UUID, migID(2), "", container("two", "main"))).Claim("one-uid")
	families := parsed(t, page)
	assert.InDelta(t, 1*gib, value(t, families, "prism_mig_memory_used_bytes"), 0)
	assert.Contains(t, families, "prism_mig_sm_active_ratio")
	assert.NotContains(t, families, "prism_gpu_power_usage_watts", "the board is all tenants'")
	assertNoOther(t, page, string(migID(2)), "two")
}

func TestClaim_TwoClaimsOfOneContainer_OwnDevices(t *testing.T) {
	list := []metrics.Allocation{
		exposed(allocation("one", gpuID(0), "", "", container("pod", "main"))), allocation("two", gpuID(1), "", "", container("pod", "main")),
	}
	gpus := []*metrics.GPU{board(0, "Tesla T4", metrics.Turing), board(1, "Tesla T4", metrics.Turing)}
	page := metrics.Join(&metrics.Snapshot{GPUs: gpus}, &metrics.Allocations{List: list}, metrics.Exporter{}).Claim("one-uid")
	assertNoOther(t, page, string(gpuID(1)))
}

func TestOTel_Usage_AddsUpToMemoryInUse(t *testing.T) {
	sums := map[string]float64{}
	for _, r := range metrics.Join(node()).OTel(time.Time{}) {
		for _, m := range r.ScopeMetrics[0].Metrics {
			for _, p := range points(m) {
				require.False(t, math.IsNaN(p.Value), m.Name)
				if m.Name == "hw.gpu.memory.usage" {
					sums[text(&p.Attributes, "hw.id")] += p.Value
				}
			}
		}
	}
	assert.Equal(t, map[string]float64{
		string(gpuID(0)): 8 * gib, string(migID(1)): 2 * gib, string(migID(2)): 4 * gib, string(gpuID(2)): 9 * gib,
	}, sums)
}

// text returns the value of an attribute; empty if there is none.
func text(of *attribute.Set, key attribute.Key) string {
	value, _ := of.Value(key)
	return value.AsString()
}

// points returns the points of a metric.
func points(m metricdata.Metrics) []metricdata.DataPoint[float64] {
	if gauge, ok := m.Data.(metricdata.Gauge[float64]); ok {
		return gauge.DataPoints
	}
	return m.Data.(metricdata.Sum[float64]).DataPoints
}

// TestOTel_TwoMIGDevicesOfOneGPUInstance_BothContainers: the instance's memory is counted once, on either MIG device.
func TestOTel_TwoMIGDevicesOfOneGPUInstance_BothContainers(t *testing.T) {
	for used, want := range map[float64]map[string]float64{
		8 * gib: {"": 3 * gib, "one": 1 * gib, "two": 4 * gib},
		3 * gib: {"": 0, "one": 0.6 * gib, "two": 2.4 * gib}, // processes share some
	} {
		g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
		g.Identity.MIGMode = true
		g.MIGDevices = []*metrics.MIGDevice{instance(1, 7, metrics.Hopper, used), instance(2, 7, metrics.Hopper, used)}
		g.MIGDevices[1].ComputeInstance = 1
		one, two := process(1, "one/main", gib, math.NaN()), process(2, "two/main", 4*gib, math.NaN())
		one.MIG, two.MIG = migID(1), migID(2)
		g.Processes = []metrics.Process{one, two}
		usage := map[string]float64{}
		for _, r := range join(g, allocation("one", gpuID(0), migID(1), "", container("one", "main")),
			allocation("two", gpuID(0), migID(2), "", container("two", "main"))).OTel(time.Time{}) {
			for _, m := range r.ScopeMetrics[0].Metrics {
				if m.Name == "hw.gpu.memory.usage" {
					require.Len(t, points(m), 1)
					usage[text(r.Resource.Set(), "k8s.pod.name")] = points(m)[0].Value
				}
			}
		}
		assert.InDeltaMapValues(t, want, usage, 1)
	}
}

func TestOTel_Resources_NodeAndEachContainer(t *testing.T) {
	byContainer := map[string][]string{}
	for _, r := range metrics.Join(node()).OTel(time.Time{}) {
		assert.Equal(t, "node-1", text(r.Resource.Set(), "k8s.node.name"))
		key := text(r.Resource.Set(), "k8s.pod.name") + "/" + text(r.Resource.Set(), "k8s.container.name")
		for _, m := range r.ScopeMetrics[0].Metrics {
			assert.True(t, strings.HasPrefix(m.Name, "hw."), m.Name)
			seen := map[string]bool{}
			for _, p := range points(m) {
				assert.NotEmpty(t, text(&p.Attributes, "hw.id"), m.Name)
				of := p.Attributes.Encoded(attribute.DefaultEncoder())
				assert.False(t, seen[of], "%s has two points %s", m.Name, of)
				seen[of] = true
			}
			byContainer[key] = append(byContainer[key], m.Name)
		}
	}
	assert.Len(t, byContainer, 7)
	assert.Contains(t, byContainer["train/main"], "hw.power")
	assert.Contains(t, byContainer["slice/main"], "hw.gpu.utilization")
	assert.NotContains(t, byContainer["slice/main"], "hw.power", "the board's power is not one MIG device's")
	assert.ElementsMatch(t, []string{"hw.gpu.memory.usage", "hw.gpu.memory.utilization"}, byContainer["pair/a"])
	assert.Contains(t, byContainer["/"], "hw.status")
	assert.Contains(t, byContainer["/"], "hw.temperature")
}

func TestValues_SetRates_FromCountersWhereGPMHasNone(t *testing.T) {
	set := func(pairs map[metrics.Field]float64) *metrics.Values {
		v := &metrics.Values{}
		for f, value := range pairs {
			v.Set(f, value)
		}
		return v
	}
	before := set(map[metrics.Field]float64{metrics.FieldNVLinkTransmitted: 1000, metrics.FieldNVLinkReceived: 5000})
	now := set(map[metrics.Field]float64{metrics.FieldNVLinkTransmitted: 3000, metrics.FieldNVLinkReceived: 10})
	now.SetRates(before, 2*time.Second)
	rate, ok := now.Get(metrics.FieldNVLinkTransmitRate)
	assert.True(t, ok)
	assert.InDelta(t, 1000, rate, 0)
	_, ok = now.Get(metrics.FieldNVLinkReceiveRate)
	assert.False(t, ok, "the counter began again")

	gpm := set(map[metrics.Field]float64{metrics.FieldNVLinkTransmitted: 3000, metrics.FieldNVLinkTransmitRate: 7})
	gpm.SetRates(before, time.Second)
	rate, _ = gpm.Get(metrics.FieldNVLinkTransmitRate)
	assert.InDelta(t, 7, rate, 0)
	first := set(map[metrics.Field]float64{metrics.FieldNVLinkTransmitted: 3000})
	first.SetRates(nil, time.Second)
	_, ok = first.Get(metrics.FieldNVLinkTransmitRate)
	assert.False(t, ok)
}

func BenchmarkPages_EightGPUsOfSevenMIGDevices(b *testing.B) {
	snapshot, allocations := busyNode()
	exporter := metrics.Exporter{Version: "1.2.3", Node: "node-1", NVMLErrors: map[gpu.UUID]uint64{}}
	j := metrics.Join(snapshot, allocations, exporter)
	native, dcgm := j.AppendNative(nil, true), j.AppendDCGM(nil, nil)
	b.Logf("native: %d series in %d bytes; DCGM: %d in %d", series(native), len(native), series(dcgm), len(dcgm))
	b.Run("join", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			metrics.Join(snapshot, allocations, exporter)
		}
	})
	b.Run("native", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			native = j.AppendNative(native[:0], true)
		}
	})
	b.Run("dcgm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dcgm = j.AppendDCGM(dcgm[:0], nil)
		}
	})
}

func series(page []byte) int {
	return strings.Count(string(page), "\n") - strings.Count(string(page), "# ")
}

// busyNode has 8 GPUs with 7 MIG devices each, used by 2 containers each.
func busyNode() (*metrics.Snapshot, *metrics.Allocations) {
	snapshot, allocations := &metrics.Snapshot{}, &metrics.Allocations{}
	pid := uint32(1)
	for i := range 8 {
		g := board(i, "NVIDIA H100 80GB HBM3", metrics.Hopper)
		g.Identity.MIGMode = true
		for k := range 7 {
			m := instance(10*i+k, k, metrics.Hopper, 4*gib)
			g.MIGDevices = append(g.MIGDevices, m)
			pod := "pod-" + string(m.UUID)
			allocations.List = append(allocations.List,
				allocation(pod, g.Identity.UUID, m.UUID, "", container(pod, "main"), container(pod, "side")))
			for _, of := range []string{"/main", "/side"} {
				p := process(pid, pod+of, gib, math.NaN())
				p.MIG = m.UUID
				g.Processes = append(g.Processes, p)
				pid++
			}
		}
		snapshot.GPUs = append(snapshot.GPUs, g)
	}
	return snapshot, allocations
}
