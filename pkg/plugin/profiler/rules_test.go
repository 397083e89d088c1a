package profiler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
	"github.com/prism-gpu/prism/test/fakes"
)

// TestEnsure_SecondClaim_NoManifestNoPatternAgain: a manifest contains the hashes of hundreds of files, and a claim reads the installed
// version three times. A version that is replaced while the plugin runs is detected anyway.
func TestEnsure_SecondClaim_NoManifestNoPatternAgain(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4")
	reads := 0
	read := n.decoded.tools.Read
	n.decoded.tools.Read = func(dir string) (manifest.Manifest, error) {
		reads++
		return read(dir)
	}
	assert.Same(t, n.decoded.patterns, n.cluster.rules.Cache, "what a plan is made of was compiled when it was checked")
	wanted := func() *v1alpha1.ProfilerConfig {
		return &v1alpha1.ProfilerConfig{CaptureEnvironment: new(true), Match: &v1alpha1.ProcessMatch{Regex: new("train")}}
	}
	for range 2 {
		r := n.planned(t, wanted())
		require.NoError(t, n.Ensure(r))
		edits, err := n.EditsOf(r)
		require.NoError(t, err)
		assert.Len(t, edits, 1)
		n.Released(claimUID)
	}
	assert.Equal(t, 1, reads)
	install(t, n.cfg, "2024.1", `"2026-11-21T00:00:00Z"`)
	config, err := plan.Config(n.planned(t, wanted()))
	require.NoError(t, err)
	assert.Equal(t, "2024.1", *config.ToolVersion)
	assert.Equal(t, 2, reads)
}

// TestProfiling_RulesChange_InForceWithoutRestart: invalid rules do not replace valid ones.
func TestProfiling_RulesChange_InForceWithoutRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := profilingNode(t, "policy: {args: Deny}", "2023.4.4")
		stop := fakes.Run(t, n.cluster.rules.watch)
		defer stop()
		write := func(text string) {
			_, err := n.client.CoreV1().ConfigMaps("ns").Update(t.Context(), rulesMap(text), metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		args := func() string { return n.cluster.rules.rules.Load().Policy.Args }
		synctest.Wait()
		assert.Equal(t, "Deny", args())
		write("policy: {args: Allow}")
		assert.Equal(t, "Allow", args())
		write("policy: {args: Maybe}")
		assert.Equal(t, "Allow", args())
		write("")
		assert.Empty(t, args())
	})
}

func TestInstalledTools_BrokenManifests_LeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tools, err := installedTools(manifest.NewCache(filepath.Join(dir, "absent")))
	require.NoError(t, err)
	assert.Empty(t, tools)
	for name, text := range map[string]string{
		"1-a": `{"schema":1,"version":"1","switches":["--a"],"nsys":"nsys","proven":"2026-11-20T00:00:00Z"}`, ".new-2": `{"schema":1,"version":"2","proven":"x"}`,
		"3-a": `{"schema":2,"version":"3","proven":"x"}`, "4-a": `{"schema":1,"version":"4","nsys":"nsys"}`,
		"8-a": `{"schema":1,"version":"8","nsys":"../../nsys","proven":"2026-11-20T00:00:00Z"}`, "5-a": `{`, "6-a": strings.Repeat(" ", 5<<20),
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "manifest.json"), []byte(text), 0o644))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "7-a"), 0o755))
	tools, err = installedTools(manifest.NewCache(dir))
	require.NoError(t, err)
	require.Len(t, tools, 1)
	assert.Equal(t, "1", tools[0].Version)
}

// TestChoose_Manual_OnlyVersionsThatWereTested: the message names the version, the reason, and versions that can.
func TestChoose_Manual_OnlyVersionsThatWereTested(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "")
	tested := func(version, manual string) {
		m := manifest.New(version)
		m.Nsys, m.Proven, m.Manual = "nsys", time.Now(), manual
		m.Switches, m.Launch, m.Start = []string{"--kill", "--wait", "--trace", "--sample", "--cpuctxsw"}, []string{"--wait", "--trace"}, []string{"--sample", "--cpuctxsw"}
		dir := filepath.Join(n.cfg.ToolsDir(), version+"-0")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, m.Write(dir))
	}
	choose := func(start v1alpha1.ProfilerStart, version string) error {
		c := &v1alpha1.ProfilerConfig{CaptureEnvironment: new(true), Start: &start, ToolVersion: &version}
		c.Default()
		return n.Claim(t.Context()).(claim.ProfileExtension).Profiler.Choose(c, false)
	}
	tested("2022.4.2", "Start ended with Failed: mixed up")
	const why = "Nsight Systems 2022.4.2 does not support start Manual on the node: Start ended with Failed: mixed up; "
	require.EqualError(t, choose(v1alpha1.StartManual, ""), why+"add another version to the chart's value profiler.tools, and set toolVersion to it (will be retried)")
	require.NoError(t, choose(v1alpha1.StartImmediate, ""))
	tested("2023.4.4", "")
	tested("2025.5.1", "")
	require.EqualError(t, choose(v1alpha1.StartManual, "2022.4.2"), why+"set toolVersion to another version that the node tested: 2023.4.4, 2025.5.1 (will be retried)")
	require.NoError(t, choose(v1alpha1.StartManual, "2023"))
	install(t, n.cfg, "2024.1", `"2026-11-21T00:00:00Z"`)
	require.ErrorContains(t, choose(v1alpha1.StartManual, "2024.1"), "an earlier version of the driver tested Nsight Systems 2024.1 on the node")
	require.NoError(t, choose(v1alpha1.StartImmediate, "2024.1"))
}

// TestKind_Plans_OfTheExtension: plans are created from records, without claims.
func TestKind_Plans_OfTheExtension(t *testing.T) {
	t.Parallel()
	assert.Equal(t, claim.KindProfile, plan.Kind)
	assert.Equal(t, claim.KindCounters, plan.KindCounters)
}
