package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/pattern"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
)

var tool = Tool{
	Tool: nsight.Tool{Version: "2023.4.4", Switches: []string{"--kill", "--wait", "--trace", "--sample", "--cpuctxsw"}},
	Dir:  "/tools/2023.4.4-0123", Nsys: "target-linux-x64/nsys",
}

// isProfiled are the extensions of a profiled result, unreadable the extensions of a record.
var (
	isProfiled = checkpoint.Extensions{Kind: json.RawMessage("{}")}
	unreadable = checkpoint.Extensions{Kind: json.RawMessage("{")}
)

// record returns the record of a claim with a MIG device that is profiled and a GPU that is not.
func record(t *testing.T, config *v1alpha1.ProfilerConfig) *checkpoint.Record {
	t.Helper()
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	return &checkpoint.Record{
		Claim: checkpoint.Claim{UID: "uid", Namespace: "ns", Name: "claim"}, Extensions: checkpoint.Extensions{Kind: raw},
		Results: []checkpoint.Result{
			{Request: "a", GPUUUID: "GPU-1"},
			{Request: "b", GPUUUID: "GPU-2", Extensions: isProfiled, MIG: &checkpoint.MIG{Identity: gpu.MIGIdentity{UUID: "MIG-2"}}},
		},
		CDI: checkpoint.CDI{Devices: []string{"uid-a", "uid-b"}},
	}
}

func configOf(t *testing.T, change func(c *v1alpha1.ProfilerConfig)) (*checkpoint.Record, *v1alpha1.ProfilerConfig) {
	t.Helper()
	c := &v1alpha1.ProfilerConfig{CaptureEnvironment: new(true)}
	if change != nil {
		change(c)
	}
	r := record(t, c)
	read, err := Config(r)
	require.NoError(t, err)
	return r, read
}

// strs returns the strings of a run file.
func strs(t *testing.T, files map[string][]byte) string {
	t.Helper()
	return strings.ReplaceAll(string(files[runFile]), "\x00", "\n")
}

func TestFiles_Run_FromConfig(t *testing.T) {
	t.Parallel()
	r, c := configOf(t, nil)
	files, err := Files(r, c, tool, Host{Node: "n0", StartTimeout: 25 * time.Second, ReportTimeout: 10 * time.Minute}, pattern.NewCache(8))
	require.NoError(t, err)
	run := strs(t, files)
	for _, line := range []string{
		"claim=uid", "namespace=ns", "claimName=claim", "node=n0", "gpu=MIG-2", "tool=/run/prism/tool/target-linux-x64/nsys",
		"file=" + v1alpha1.DefaultFileName, "dir=/run/prism/results", "maxSessions=1", "readySeconds=25", "reportSeconds=600", "termSeconds=20",
		"execSessions=0", "failClosed=0", "switch=--kill=none",
	} {
		assert.Contains(t, run, line+"\n")
	}
	again, err := Files(r, c, tool, Host{Node: "n0", StartTimeout: 25 * time.Second, ReportTimeout: 10 * time.Minute}, pattern.NewCache(8))
	require.NoError(t, err)
	assert.Equal(t, files, again)

	r, c = configOf(t, func(c *v1alpha1.ProfilerConfig) {
		c.Match = &v1alpha1.ProcessMatch{Regex: new("python"), IncludeExecSessions: new(true)}
		c.FailurePolicy = new(v1alpha1.FailClosed)
		c.Output = &v1alpha1.ProfilerOutput{Type: new(v1alpha1.OutputContainerPath), Path: new("/data/{POD}"), FileName: new("{UID}")}
	})
	files, err = Files(r, c, tool, Host{Node: "n0", StartTimeout: 25 * time.Second, ReportTimeout: 10 * time.Minute}, pattern.NewCache(8))
	require.NoError(t, err)
	run = strs(t, files)
	for _, line := range []string{"file={UID}", "dir=/data/{POD}", "maxSessions=16", "execSessions=1", "failClosed=1"} {
		assert.Contains(t, run, line+"\n")
	}
}

// TestFiles_Manual_SwitchesOfBothCommands: the duration is a command's, not a switch.
func TestFiles_Manual_SwitchesOfBothCommands(t *testing.T) {
	t.Parallel()
	waits := tool
	waits.Switches, waits.Launch, waits.Start = nil, []string{"--wait", "--trace"}, []string{"--sample", "--cpuctxsw"}
	r, c := configOf(t, func(c *v1alpha1.ProfilerConfig) {
		c.Start, c.Duration = new(v1alpha1.StartManual), &metav1.Duration{Duration: time.Minute}
	})
	files, err := Files(r, c, waits, Host{Node: "n0"}, pattern.NewCache(8))
	require.NoError(t, err)
	run := strs(t, files)
	assert.Contains(t, run, "\nswitch=--wait=primary\nswitch=--trace=cuda,nvtx\nmanual=1\nstartSwitch=--sample=none\nstartSwitch=--cpuctxsw=none\n")
	assert.NotContains(t, run, "duration")
	_, err = Files(r, c, tool, Host{Node: "n0"}, pattern.NewCache(8))
	require.ErrorContains(t, err, "did not test start Manual")

	r, c = configOf(t, nil)
	files, err = Files(r, c, tool, Host{Node: "n0"}, pattern.NewCache(8))
	require.NoError(t, err)
	assert.NotContains(t, strs(t, files), "manual=")
}

// TestDisarmedMatch_Processes_NoneSelected: neither by command line, program nor argument, whatever they contain.
func TestDisarmedMatch_Processes_NoneSelected(t *testing.T) {
	t.Parallel()
	encoded, err := DisarmedMatch()
	require.NoError(t, err)
	disarmed, err := pattern.Decode(encoded)
	require.NoError(t, err)
	r, c := configOf(t, func(c *v1alpha1.ProfilerConfig) { c.Match = &v1alpha1.ProcessMatch{UseDefaultExcludes: new(false)} })
	files, err := Files(r, c, tool, Host{}, pattern.NewCache(8))
	require.NoError(t, err)
	armed, err := pattern.Decode(files[MatchFile])
	require.NoError(t, err)
	again, err := Match(c, pattern.NewCache(8))
	require.NoError(t, err)
	assert.Equal(t, files[MatchFile], again)
	for _, argv := range [][]string{nil, {""}, {"python3", "train.py"}, {"\xff\n", "\x00"}, {strings.Repeat("a", 1<<16)}} {
		assert.True(t, armed.Match(argv, "/usr/bin/python3"))
		assert.False(t, disarmed.Match(argv, "/usr/bin/python3"))
	}
}

// TestEdits_TwoDevices_ProfiledOneOnly: a container can write only to the inbox, which contains no programs.
func TestEdits_TwoDevices_ProfiledOneOnly(t *testing.T) {
	t.Parallel()
	r, c := configOf(t, nil)
	edits := Edits(r, c, tool, Host{
		Node: "n0", Programs: "/programs", Plan: "/plan", Inbox: "/inbox",
		Hook: func(args ...string) *specs.Hook { return cdi.CreateContainerHook("/programs/prism-hook", args...) },
	})
	require.Len(t, edits, 1)
	assert.Equal(t, "uid-b", edits[0].Device)
	assert.Empty(t, edits[0].Edits.Env)
	assert.Equal(t, []string{"prism-hook", "profile", "-claim", "uid", "-node", "n0", "-inbox", "/inbox"}, edits[0].Edits.Hooks[0].Args)
	for _, m := range edits[0].Edits.Mounts {
		switch m.ContainerPath {
		case "/run/prism/results":
			assert.Subset(t, m.Options, []string{"rw", "noexec", "nosuid", "nodev"})
		case "/run/prism/container":
			assert.Equal(t, "tmpfs", m.Type)
			assert.Subset(t, m.Options, []string{"noexec", "nosuid", "nodev", "mode=0755"})
		default:
			assert.Subset(t, m.Options, []string{"ro", "nosuid", "nodev"})
		}
	}
}

// TestEdits_DevicesOfRequest_HookOnce: a container uses all devices of a request or none, and may use one request of several.
func TestEdits_DevicesOfRequest_HookOnce(t *testing.T) {
	t.Parallel()
	r, c := configOf(t, nil)
	r.CDI.Devices, r.Results = nil, nil
	for device, request := range []string{"a", "a", "b/first", "a", "b/first"} {
		r.CDI.Devices = append(r.CDI.Devices, fmt.Sprint(device))
		result := checkpoint.Result{Request: request}
		if device > 0 {
			result.Extensions = isProfiled
		}
		r.Results = append(r.Results, result)
	}
	var devices []string
	for _, edits := range Edits(r, c, tool, Host{Hook: func(args ...string) *specs.Hook { return cdi.CreateContainerHook("/hook", args...) }}) {
		devices = append(devices, edits.Device)
		require.Len(t, edits.Edits.Hooks, 1)
		require.NotNil(t, edits.Edits.Hooks[0].Timeout, "a hook that hangs must not keep the container from starting for ever")
	}
	assert.Equal(t, []string{"1", "2"}, devices)
}

// TestClaim_OutputPath_FolderOfReports: reports that stay in their container are in that folder; no others stay there.
func TestClaim_OutputPath_FolderOfReports(t *testing.T) {
	t.Parallel()
	r, c := configOf(t, func(c *v1alpha1.ProfilerConfig) {
		c.Output = &v1alpha1.ProfilerOutput{Type: new(v1alpha1.OutputContainerPath), Path: new("/out/{POD}")}
	})
	assert.Equal(t, "/out/{POD}", Claim(r, c, tool, "n1").Dir)
	r, c = configOf(t, nil)
	assert.Equal(t, "/run/prism/results", Claim(r, c, tool, "n1").Dir)
}

func TestConfig_Damaged_NamesClaim(t *testing.T) {
	t.Parallel()
	_, err := Config(&checkpoint.Record{Claim: checkpoint.Claim{Namespace: "ns", Name: "claim"}, Extensions: unreadable})
	require.ErrorContains(t, err, "reading the profile in the record of claim ns/claim: ")
}

// TestConfigs_SameAndOther_AsConfig: the decoded configuration is cached for the same configuration only.
func TestConfigs_SameAndOther_AsConfig(t *testing.T) {
	t.Parallel()
	a, _ := configOf(t, nil)
	b, _ := configOf(t, func(c *v1alpha1.ProfilerConfig) { c.FailurePolicy = new(v1alpha1.FailClosed) })
	var configs Configs
	for _, r := range []*checkpoint.Record{a, a, b, a} {
		want, err := Config(r)
		require.NoError(t, err)
		got, err := configs.Of(r)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		again, err := configs.Of(r)
		require.NoError(t, err)
		assert.Same(t, got, again)
	}
	_, err := configs.Of(&checkpoint.Record{Extensions: unreadable})
	require.Error(t, err)
}
