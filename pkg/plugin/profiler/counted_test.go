package profiler

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

const collectorVersion = "2025.5.1"

// collectingNode returns a node with the collector.
func collectingNode(t *testing.T, rules string, versions ...string) *profilingHost {
	t.Helper()
	n := profilingNode(t, rules, versions...)
	n.cfg.Profiler.Collector, n.cfg.Profiler.CollectorVersion = true, collectorVersion
	require.NoError(t, os.MkdirAll(filepath.Join(n.cfg.CollectorDir(), claimUID), 0o700))
	return n
}

// countedRecord returns the record of a claim for counters with that profile; injected: its processes are profiled too.
func countedRecord(t *testing.T, config *v1alpha1.ProfilerConfig, injected bool) *checkpoint.Record {
	t.Helper()
	config.ToolVersion = new(collectorVersion)
	config.Default()
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	r := profiledRecord(claimUID)
	r.Extensions = checkpoint.Extensions{
		claim.KindProfile: raw,
		claim.KindCounters: []byte(`{"gpus":[{"uuid":"GPU-aaaaaaaa-0000-4000-8000-000000000000","pciAddress":"0000:01:00.0"}],"frequencyHz":10000,` +
			`"seconds":60}`),
	}
	r.Results[0].Extensions = checkpoint.Extensions{claim.KindCounters: []byte("{}")}
	if injected {
		r.Results[0].Extensions[claim.KindProfile] = []byte("{}")
	}
	return r
}

// stored returns what the store knows of the claim.
func (n *profilingHost) stored(t *testing.T) store.Claim {
	t.Helper()
	require.NoError(t, n.store.Lead())
	var index struct {
		Claim store.Claim `json:"claim"`
	}
	raw, err := os.ReadFile(filepath.Join(n.cfg.ProfilesDir(), claimUID, "index.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &index))
	return index.Claim
}

// TestEnsure_InjectionNone_OnlyCounters: nothing is made for containers, and the node needs neither programs for them nor the tool.
func TestEnsure_InjectionNone_OnlyCounters(t *testing.T) {
	t.Parallel()
	n := collectingNode(t, "")
	r := countedRecord(t, &v1alpha1.ProfilerConfig{Injection: new(v1alpha1.InjectionNone), Start: new(v1alpha1.StartManual)}, false)
	for range 2 {
		require.NoError(t, n.Ensure(r))
		stored := n.stored(t)
		assert.True(t, stored.Counters)
		assert.Equal(t, collectorVersion, stored.Tool)
		assert.True(t, stored.ByHand.Waits)
		for _, file := range []string{plan.MatchFile, "run"} {
			assert.NoFileExists(t, filepath.Join(n.store.Folders(claimUID).Plan, file))
		}
	}
	edits, err := n.EditsOf(r)
	require.NoError(t, err)
	assert.Empty(t, edits)
	assert.Empty(t, n.conditions(r), "about processes")
	plain := profiledRecord("6f0c1d2e-0000-4000-8000-00000000000b")
	plain.Results[0].Extensions, plain.Extensions = nil, nil
	require.NoError(t, n.Ensure(plain))
	assert.NoDirExists(t, filepath.Join(n.cfg.ProfilesDir(), plain.Claim.UID))
	r.Extensions[claim.KindProfile] = []byte("{")
	require.ErrorContains(t, n.Ensure(r), "reading the profile in the record of claim")
}

// TestEnsure_PreloadAndCounters_Both: counters are recorded even if containers start unprofiled, because their tool was removed.
func TestEnsure_PreloadAndCounters_Both(t *testing.T) {
	t.Parallel()
	for _, installed := range []bool{true, false} {
		n := collectingNode(t, "", map[bool]string{true: collectorVersion, false: "2023.4.4"}[installed])
		require.NoError(t, n.Ensure(countedRecord(t, &v1alpha1.ProfilerConfig{CaptureEnvironment: new(true)}, true)))
		assert.True(t, n.stored(t).Counters)
		_, err := os.Stat(filepath.Join(n.store.Folders(claimUID).Plan, plan.MatchFile))
		assert.Equal(t, installed, err == nil)
	}
	n := collectingNode(t, "", collectorVersion)
	r := countedRecord(t, &v1alpha1.ProfilerConfig{CaptureEnvironment: new(true)}, true)
	delete(r.Extensions, claim.KindCounters)
	require.NoError(t, n.Ensure(r))
	assert.False(t, n.stored(t).Counters, "a claim without counters")
}

// TestNewCounting_Profiler_DecidesAboutOrders: they need the collector and the store.
func TestNewCounting_Profiler_DecidesAboutOrders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		profiler, collector bool
	}{"on": {true, true}, "collector off": {true, false}, "profiler off": {false, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := collectingNode(t, "")
			n.cfg.Profiler.Enabled, n.cfg.Profiler.Collector = c.profiler, c.collector
			n.cfg.Profiler.StartTimeout = 20 * time.Second
			set, _ := installed(t, n.cfg)
			o := Options{Config: n.cfg, Files: disk.OS{}, Now: time.Now, Programs: set}
			profiles, err := Open(t.Context(), o)
			require.NoError(t, err)
			e := NewCounting(t.Context(), o, profiles)
			r := countedRecord(t, &v1alpha1.ProfilerConfig{Injection: new(v1alpha1.InjectionNone)}, false)
			require.NoError(t, e.Ensure(r))
			raw, err := os.ReadFile(filepath.Join(n.cfg.CollectorDir(), claimUID, counters.OrderFile))
			assert.Equal(t, c.profiler && c.collector, err == nil)
			if err == nil {
				order, err := counters.ParseOrder(raw)
				require.NoError(t, err)
				assert.EqualValues(t, 20, order.StartSeconds)
				assert.Equal(t, "n0", order.Node)
			}
			reason := e.StatusConditions(r)[0].Reason
			assert.Equal(t, c.profiler && c.collector, reason == "Pending", reason)
		})
	}
}

// TestFollowed_CountedClaim_ReportedAgain: its status is written again when the collector's state changes, although no process is profiled.
func TestFollowed_CountedClaim_ReportedAgain(t *testing.T) {
	t.Parallel()
	p, reported := &Extension{followed: newFollowed()}, &preparedCount{}
	reports := p.Follow(reported)
	r := countedRecord(t, &v1alpha1.ProfilerConfig{Injection: new(v1alpha1.InjectionNone)}, false)
	reports.Prepared(r)
	p.followed.claims[claimUID].reported = time.Time{}
	p.followed.change(claimUID)
	p.followed.report()
	assert.EqualValues(t, 2, reported.prepared.Load())
	p.followed = newFollowed()
	p.Follow(reported)
	p.followed.recall([]*checkpoint.Record{r})
	p.followed.report()
	assert.EqualValues(t, 3, reported.prepared.Load(), "after a restart")
}

// TestCounters_Versions_CollectorsOrRefused: the claim gets the collector's version, or reads why not.
func TestCounters_Versions_CollectorsOrRefused(t *testing.T) {
	t.Parallel()
	n := collectingNode(t, "")
	for wanted, refused := range map[string]string{
		"": "", collectorVersion: "", "2025.5": "", "2025": "",
		"2023.4.4": "prism-collector records with Nsight Systems 2025.5.1 on node n0, and ProfilerConfig.toolVersion is 2023.4.4; set toolVersion to 2025.5.1, " +
			"or the chart's value profiler.collector.toolVersion (will be retried)",
		"2025.5.10": "prism-collector records with Nsight Systems 2025.5.1 on node n0, and ProfilerConfig.toolVersion is 2025.5.10; set toolVersion to 2025.5.1, " +
			"or the chart's value profiler.collector.toolVersion (will be retried)",
	} {
		c := &v1alpha1.ProfilerConfig{ToolVersion: &wanted}
		err := n.cluster.rules.Counters(c)
		if refused == "" {
			require.NoError(t, err)
			assert.Equal(t, collectorVersion, *c.ToolVersion)
			continue
		}
		require.EqualError(t, err, refused)
		assert.Equal(t, wanted, *c.ToolVersion)
	}
	c := &v1alpha1.ProfilerConfig{}
	require.NoError(t, n.cluster.rules.Counters(c))
	assert.Equal(t, collectorVersion, *c.ToolVersion)

	n.cfg.Profiler.Collector = false
	err := n.cluster.rules.Counters(c)
	require.ErrorContains(t, err, "does not run on node n0; set the chart's value profiler.collector.enabled to true")
	refusal, ok := errors.AsType[*claim.Refusal](err)
	require.True(t, ok)
	assert.Equal(t, []string{claim.KindCounters, "CollectorOff"}, []string{refusal.Extension, refusal.Condition})
	assert.True(t, refusal.Mendable)
}

// TestMaxDuration_Policy_PassedToCommands: as soon as it is known.
func TestMaxDuration_Policy_PassedToCommands(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "policy: {maxDuration: 10m}")
	assert.Equal(t, 10*time.Minute, n.sessions.MaxDuration())
	assert.Zero(t, profilingNode(t, "policy: {args: Deny}").sessions.MaxDuration())
	n.cluster.rules.rules.Store(nil)
	assert.Zero(t, n.sessions.MaxDuration())
	n.cluster = nil
	assert.Zero(t, n.sessions.MaxDuration())
}
