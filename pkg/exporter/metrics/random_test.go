package metrics_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// anyNode is a node in any state, sensible or not.
func anyNode(r *rand.Rand) (*metrics.Snapshot, *metrics.Allocations) {
	snapshot, allocations := &metrics.Snapshot{}, &metrics.Allocations{}
	for i := range 1 + r.IntN(3) {
		g := board(i, "NVIDIA H100 80GB HBM3", metrics.Hopper)
		if r.IntN(4) == 0 {
			g.Up, g.Identity = false, metrics.Identity{Index: i, PCIBusID: []string{"", "0000:3b:00.0"}[r.IntN(2)]}
		}
		g.Up, g.ProcessesHidden = g.Identity.UUID != "" && r.IntN(6) > 0, r.IntN(6) == 0
		var devices []gpu.UUID
		for k := range r.IntN(4) {
			g.MIGDevices = append(g.MIGDevices, instance(10*i+k, r.IntN(3), metrics.Hopper, float64(r.IntN(4))*gib))
			devices = append(devices, migID(10*i+k))
		}
		g.Identity.MIGMode = len(devices) > 0
		devices = append(devices, "")
		for n := range r.IntN(5) {
			var containers []metrics.Container
			for range r.IntN(3) {
				c := container(fmt.Sprintf("pod-%d", r.IntN(3)), fmt.Sprintf("c%d", r.IntN(2)))
				if r.IntN(5) == 0 {
					c.ID = ""
				}
				containers = append(containers, c)
			}
			share := ""
			if r.IntN(2) == 0 {
				share = fmt.Sprintf("s%d", n)
			}
			a := allocation(fmt.Sprintf("claim-%d", n), g.Identity.UUID, devices[r.IntN(len(devices))], share, containers...)
			a.ThroughServer = r.IntN(3) == 0
			a.Options.PerProcess, a.Options.ExposeInContainer = r.IntN(2) == 0, true
			allocations.List = append(allocations.List, a)
		}
		for range r.IntN(8) {
			p := process(uint32(r.IntN(6)), "", float64(r.IntN(6))*gib, r.Float64())
			p.ContainerID = fmt.Sprintf("pod-%d/c%d", r.IntN(4), r.IntN(2))
			p.MIG, p.ServesClients = devices[r.IntN(len(devices))], r.IntN(5) == 0
			if r.IntN(5) == 0 {
				p.MemoryBytes, p.SM = math.NaN(), math.NaN()
			}
			g.Processes = append(g.Processes, p)
		}
		snapshot.GPUs = append(snapshot.GPUs, g)
	}
	return snapshot, allocations
}

func TestJoin_AnyNode_PagesHold(t *testing.T) {
	for seed := range uint64(100) {
		snapshot, allocations := anyNode(rand.New(rand.NewPCG(seed, 1)))
		j := metrics.Join(snapshot, allocations, metrics.Exporter{Node: "node-1"})
		families := native(t, j)
		parsed(t, j.AppendDCGM(nil, nil))
		for _, r := range j.OTel(time.Time{}) {
			require.NotEmpty(t, r.ScopeMetrics[0].Metrics)
		}
		for _, g := range snapshot.GPUs {
			if g.Up {
				assertSums(t, families, g.Identity.UUID)
			}
			for _, m := range samples(families, utilizationByContainer) {
				require.True(t, m.GetGauge().GetValue() >= 0 && m.GetGauge().GetValue() <= 1)
			}
		}
		for _, a := range allocations.List {
			assertOwnPods(t, j.Claim(a.ClaimUID), podsOf(allocations, a.ClaimUID))
		}
		if t.Failed() {
			assert.FailNow(t, "failed", "seed %d", seed)
		}
	}
}

// assertOwnPods fails if a claim's page names a pod of another claim.
func assertOwnPods(t *testing.T, page []byte, pods []string) {
	t.Helper()
	for name, family := range parsed(t, page) {
		for _, m := range family.GetMetric() {
			if pod := labelOf(m, "pod"); pod != "" {
				assert.Contains(t, pods, pod, "%s has a pod of another claim", name)
			}
		}
	}
}

func podsOf(allocations *metrics.Allocations, uid string) []string {
	var pods []string
	for _, a := range allocations.List {
		for _, c := range a.Containers {
			if a.ClaimUID == uid {
				pods = append(pods, c.Pod)
			}
		}
	}
	return pods
}
