package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/profiler"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// profilesOf is the plugin's profiler.
func profilesOf(p *Plugin) *profiler.Extension {
	return extension.All[*profiler.Extension](p.Machine.Extensions)[0]
}

// specOf reads the CDI spec of the claim.
func specOf(t *testing.T, cfg *config.Plugin) (spec specs.Spec) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(cfg.Paths.CDIRoot, "k8s.gpu.prism.dev-claim_"+claimUID+".json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &spec))
	return spec
}

// TestPrepare_Profile_PlanAndSpec: the containers get the plan, the tool and the hook; a repeated Prepare makes missing ones again.
func TestPrepare_Profile_PlanAndSpec(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4")
	p := n.build(t)
	rc := n.profiledClaim(t, withEnvironment+`,"containers":["train*","eval"],"failurePolicy":"FailClosed"`)
	require.NoError(t, prepared(t.Context(), p, rc))
	edits := specOf(t, n.cfg).Devices[0].ContainerEdits
	programs, tool := filepath.Join(n.cfg.ProgramsDir(), testVersion), filepath.Join(n.cfg.ToolsDir(), "2023.4.4-0123")
	claim := filepath.Join(n.cfg.ProfilesDir(), claimUID)
	mounts := map[string]string{}
	for _, m := range edits.Mounts {
		mounts[m.ContainerPath] = m.HostPath
	}
	assert.Equal(t, map[string]string{
		"/run/prism/programs": programs, "/run/prism/tool/target-linux-x64": filepath.Join(tool, "target-linux-x64"),
		"/run/prism/plan": filepath.Join(claim, "plan"), "/run/prism/results": filepath.Join(claim, "inbox"), "/run/prism/container": "tmpfs",
	}, mounts)
	require.Len(t, edits.Hooks, 1)
	assert.Equal(t, []string{
		"prism-hook", "profile", "-claim", claimUID, "-node", "n0", "-inbox", filepath.Join(claim, "inbox"), "-containers", "train*,eval",
		"-fail-closed",
	}, edits.Hooks[0].Args)
	assert.Equal(t, "createContainer", edits.Hooks[0].HookName)
	for _, program := range []string{cdi.OwnHookName, profiler.Library, profiler.Run} {
		assert.FileExists(t, filepath.Join(programs, program))
	}
	run := filepath.Join(claim, "plan", "run")
	library, err := os.ReadFile(filepath.Join(programs, profiler.Library))
	require.NoError(t, err)
	record, err := p.Machine.State.Records.Load(claimUID)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256(library)), profilesOf(p).StatusData(nil, record, &record.Results[0])["profilerLibrary"])
	record.Claim.UID = "other"
	assert.NotContains(t, profilesOf(p).StatusData(nil, record, &record.Results[0]), "profilerLibrary")
	was, err := os.ReadFile(run)
	require.NoError(t, err)
	assert.Contains(t, string(was), "tool=/run/prism/tool/target-linux-x64/nsys\x00")
	assert.FileExists(t, filepath.Join(claim, "plan", "match"))

	require.NoError(t, os.Remove(run))
	require.NoError(t, prepared(t.Context(), p, rc))
	again, err := os.ReadFile(run)
	require.NoError(t, err)
	assert.Equal(t, was, again)
}

// TestPrepare_ContainerPath_WholeTool: the tool imports reports in the container.
func TestPrepare_ContainerPath_WholeTool(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4")
	p := n.build(t)
	require.NoError(t, prepared(t.Context(), p, n.profiledClaim(t, withEnvironment+`,"output":{"type":"ContainerPath","path":"/data"}`)))
	found := map[string]string{}
	for _, m := range specOf(t, n.cfg).Devices[0].ContainerEdits.Mounts {
		found[m.ContainerPath] = m.HostPath
	}
	tool := filepath.Join(n.cfg.ToolsDir(), "2023.4.4-0123")
	assert.Equal(t, []string{filepath.Join(tool, "target-linux-x64"), filepath.Join(tool, "importer/host-linux-x64")},
		[]string{found["/run/prism/tool/target-linux-x64"], found["/run/prism/tool/host-linux-x64"]})
}

// TestPrepare_ToolGone_AnswerStays: a running claim keeps its spec, and a new claim is refused.
func TestPrepare_ToolGone_AnswerStays(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4")
	p := n.build(t)
	rc := n.profiledClaim(t, withEnvironment)
	require.NoError(t, prepared(t.Context(), p, rc))
	was := specOf(t, n.cfg)
	require.NoError(t, os.RemoveAll(n.cfg.ToolsDir()))
	require.NoError(t, prepared(t.Context(), p, rc))
	assert.Equal(t, was, specOf(t, n.cfg))
	record, err := p.Machine.State.Records.Load(claimUID)
	require.NoError(t, err)
	assert.True(t, profilesOf(n.build(t)).StatusConditions(record)[0].True, "its containers that start have the tool's files mounted")
}

// TestPrepare_ToolAndSpecGone_ByFailurePolicy: after a reboot the spec is made again, and the version may have been replaced.
func TestPrepare_ToolAndSpecGone_ByFailurePolicy(t *testing.T) {
	t.Parallel()
	for policy, refused := range map[string]string{"FailOpen": "", "FailClosed": "(will be retried)"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := profilingNode(t, "", "2023.4.4")
				p := n.build(t)
				rc := n.profiledClaim(t, withEnvironment+`,"failurePolicy":"`+policy+`"`)
				require.NoError(t, prepared(t.Context(), p, rc))
				record, err := p.Machine.State.Records.Load(claimUID)
				require.NoError(t, err)
				require.NoError(t, os.RemoveAll(n.cfg.ToolsDir()))
				require.NoError(t, os.Remove(filepath.Join(n.cfg.Paths.CDIRoot, "k8s.gpu.prism.dev-claim_"+claimUID+".json")))
				bounded, stop := context.WithTimeout(t.Context(), 3*time.Second) // it is retried for longer
				defer stop()
				err = prepared(bounded, p, rc)
				if refused != "" {
					require.ErrorContains(t, err, "Nsight Systems 2023.4.4 is not installed")
					require.ErrorContains(t, err, refused)
					return
				}
				require.NoError(t, err)
				for _, m := range specOf(t, n.cfg).Devices[0].ContainerEdits.Mounts {
					assert.NotContains(t, m.ContainerPath, "/run/prism")
				}
				for _, process := range []*Plugin{p, n.build(t)} {
					ready := profilesOf(process).StatusConditions(record)[0]
					assert.Equal(t, []any{"ProfilerReady", false, report.ReasonToolNotInstalled}, []any{ready.Type, ready.True, ready.Reason})
				}
			})
		})
	}
}

// TestPrepare_ProgramsMissing_Refused: without the library nothing would be recorded.
func TestPrepare_ProgramsMissing_Refused(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4")
	require.NoError(t, os.Remove(filepath.Join(n.adapters.ImageDir, profiler.Run)))
	p := n.build(t)
	rc := n.profiledClaim(t, withEnvironment)
	require.ErrorContains(t, prepared(t.Context(), p, rc), "the profiler's programs are not installed on the node")
	rc.Status.Allocation.Devices.Config = nil
	require.NoError(t, prepared(t.Context(), p, rc))
}

// TestUnprepare_Profile_Released: the folder of a claim without reports goes with the next sweep, not before.
func TestUnprepare_Profile_Released(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4")
	p := n.build(t)
	rc := n.profiledClaim(t, withEnvironment)
	require.NoError(t, prepared(t.Context(), p, rc))
	folder := filepath.Join(n.cfg.ProfilesDir(), claimUID)
	require.NoError(t, profilesOf(p).Reports().Lead())
	sweep := func() error {
		return profilesOf(p).Reports().Sweep(func() (map[string]bool, error) {
			records, err := p.Machine.Kept()
			uids := map[string]bool{}
			for _, r := range records {
				uids[r.Claim.UID] = true
			}
			return uids, err
		})
	}
	require.NoError(t, sweep())
	assert.DirExists(t, folder, "it is prepared")
	require.NoError(t, unprepared(t.Context(), p, rc))
	assert.DirExists(t, folder)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, sweep())
		assert.NoDirExists(c, folder)
	}, time.Minute, 10*time.Millisecond)
}
