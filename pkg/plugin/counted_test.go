package plugin

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/test/fakes"
)

// counts plans the counters of a claim's first GPU, and no process.
type counts struct{}

func (counts) Kind() string { return "counts" }

func (counts) Claim(context.Context) claim.PlanExtension { return counts{} }

func (counts) Plan(p *claim.Plan, _ *resourceapi.ResourceClaim, _ []claim.Options, _ error) error {
	profile := &v1alpha1.ProfilerConfig{Injection: new(v1alpha1.InjectionNone), ToolVersion: new("2025.5.1")}
	profile.Default()
	p.Extend(claim.KindProfile, profile)
	p.Extend(claim.KindCounters, &gpu.CounterOptions{
		GPUs: []gpu.CounterGPU{{UUID: p.Results[0].Device.Parent().UUID, PCIAddress: "0000:01:00.0"}}, FrequencyHz: 10000, Seconds: 60,
	})
	p.Results[0].Extend(claim.KindCounters, struct{}{})
	return nil
}

// countingNode is a node with prism-collector, whose claims are for counters, and the folder of a claim.
func countingNode(t *testing.T) *wired {
	t.Helper()
	n := profilingNode(t, "")
	n.cfg.Profiler.Collector, n.cfg.Profiler.CollectorVersion = true, "2025.5.1"
	n.cfg.PerfmonDevices = config.PerfmonPerGPU
	n.adapters.Extensions = []extension.Extension{counts{}}
	require.NoError(t, os.MkdirAll(n.collectorFile(claimUID, ""), 0o700))
	return n
}

// collectorFile is a path in the collector's folder of a claim.
func (n *wired) collectorFile(uid, name string) string {
	return filepath.Join(n.cfg.CollectorDir(), uid, name)
}

// writes replaces a file of the collector.
func writes(t *testing.T, path string, encode func() ([]byte, error)) {
	t.Helper()
	raw, err := encode()
	require.NoError(t, err)
	require.NoError(t, disk.Replace(disk.OS{}, path, raw, 0o600, false))
}

// TestCounted_Claim_OrderAndStatus: from Prepare to Unprepare. Nothing runs in containers.
func TestCounted_Claim_OrderAndStatus(t *testing.T) {
	t.Parallel()
	n := countingNode(t)
	p := n.build(t)
	defer fakes.Run(t, p.statuses.Run)()
	for _, service := range extension.All[extension.Service](p.Machine.Extensions) {
		defer fakes.Run(t, service.Run)()
	}
	rc := n.profiledClaim(t, "")
	_, err := n.client.ResourceV1().ResourceClaims(rc.Namespace).Update(t.Context(), rc, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, prepared(t.Context(), p, rc))
	raw, err := os.ReadFile(n.collectorFile(claimUID, counters.OrderFile))
	require.NoError(t, err)
	order, err := counters.ParseOrder(raw)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "n0", n.model.Identities()[0].UUID}, []string{order.Name, order.Node, order.GPUs[0].UUID})
	assert.Empty(t, specOf(t, n.cfg).Devices[0].ContainerEdits.Mounts)
	says := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			devices := n.status(t, rc)
			require.NotEmpty(c, devices)
			found := meta.FindStatusCondition(devices[0].Conditions, "PerfCountersAvailable")
			require.NotNil(c, found)
			assert.Equal(c, []string{string(status), reason}, []string{string(found.Status), found.Reason})
			assert.Nil(c, meta.FindStatusCondition(devices[0].Conditions, "Profiling"))
		}, time.Minute, 10*time.Millisecond)
	}
	says(metav1.ConditionFalse, "Pending")
	writes(t, n.collectorFile(claimUID, counters.StateFile), counters.State{Reason: counters.Recording}.Encode)
	says(metav1.ConditionTrue, "Recording")
	require.NoError(t, unprepared(t.Context(), p, rc))
	assert.NoFileExists(t, n.collectorFile(claimUID, counters.OrderFile))
}

// TestCounted_RecordGone_OrderCollected: a kill, or a power cut, left the order of a claim without a record. The order of a prepared claim
// stays, also on a node whose collector was turned off.
func TestCounted_RecordGone_OrderCollected(t *testing.T) {
	t.Parallel()
	n := countingNode(t)
	p, err := Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	require.NoError(t, prepared(t.Context(), p, n.profiledClaim(t, "")))
	const left = "6f0c1d2e-0000-4000-8000-00000000000b"
	require.NoError(t, os.MkdirAll(n.collectorFile(left, counters.InboxDir), 0o700))
	require.NoError(t, p.Close())
	for _, on := range []bool{true, false} {
		require.NoError(t, os.WriteFile(n.collectorFile(left, counters.OrderFile), nil, 0o600))
		n.cfg.Profiler.Collector = on
		p, err := Build(t.Context(), n.cfg, n.adapters)
		require.NoError(t, err)
		_, err = p.leader.reconciler.Node.Collect(t.Context(), nil, true)
		require.NoError(t, err)
		assert.NoFileExists(t, n.collectorFile(left, counters.OrderFile))
		assert.DirExists(t, n.collectorFile(left, counters.InboxDir), "its reports are the store's")
		assert.FileExists(t, n.collectorFile(claimUID, counters.OrderFile))
		require.NoError(t, p.Close())
	}
	n.cfg.Profiler.Enabled = false
	p = n.build(t)
	record, err := p.Machine.State.Records.Load(claimUID)
	require.NoError(t, err)
	assert.Equal(t, checkpoint.Done, record.State)
	require.NoError(t, p.Claims.Unprepare(t.Context(), claimUID))
	assert.NoFileExists(t, n.collectorFile(claimUID, counters.OrderFile), "also without the profiler")
}

// TestCounted_BusyCounters_PerfmonTainted: from the first publication until they are free, and no other device.
func TestCounted_BusyCounters_PerfmonTainted(t *testing.T) {
	t.Parallel()
	n := countingNode(t)
	busy := filepath.Join(n.cfg.CollectorDir(), counters.BusyFile)
	writes(t, busy, counters.Busy{GPUs: []string{n.model.Identities()[1].UUID}}.Encode)
	p := n.build(t)
	n.slices.leads = true
	taints := func() (names []string) {
		for name, device := range n.slices.published() {
			for _, taint := range device.Taints {
				names = append(names, name+" "+taint.Key)
			}
		}
		return names
	}
	assert.Equal(t, []string{n.device(1) + "-perfmon gpu.prism.dev/perfmon-busy"}, taints())
	assert.NotEmpty(t, n.slices.published()[n.device(0)+"-perfmon"].Name)
	defer fakes.Run(t, p.layout.Publisher.Run)()
	for _, service := range extension.All[extension.Service](p.Machine.Extensions) {
		defer fakes.Run(t, service.Run)()
	}
	writes(t, busy, counters.Busy{}.Encode)
	eventually(t, func() bool { return len(taints()) == 0 }, "they are free")
}
