package runplan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
)

func TestEncode_AllFields_OneStringEach(t *testing.T) {
	t.Parallel()
	encoded, err := runplan.Plan{
		Claim: "uid", Namespace: "ns", ClaimName: "claim", Node: "node-a", GPU: "GPU-1", Tool: "/run/prism/tool/nsys",
		Switches: []string{"--trace", "osrt"}, Env: []string{"A=b c", "D=\n"}, File: "{POD}", Dir: "/data/{POD}", MaxSessions: 3,
		ExecSessions: true, FailClosed: true, Ready: time.Second, Report: 2 * time.Second, Term: 3 * time.Second, Stop: 4 * time.Second,
	}.Encode()
	require.NoError(t, err)
	assert.Equal(t, []string{
		"version=1", "claim=uid", "namespace=ns", "claimName=claim", "node=node-a", "gpu=GPU-1", "tool=/run/prism/tool/nsys",
		"switch=--trace", "switch=osrt", "env=A=b c", "env=D=\n", "file={POD}", "dir=/data/{POD}", "maxSessions=3", "execSessions=1",
		"failClosed=1", "readySeconds=1", "reportSeconds=2", "termSeconds=3", "stopSeconds=4", "",
	}, strings.Split(string(encoded), "\x00"))
}

func TestEncode_Defaults_Written(t *testing.T) {
	t.Parallel()
	encoded, err := runplan.Plan{Tool: "/nsys"}.Encode()
	require.NoError(t, err)
	assert.Equal(t, []string{
		"dir=/run/prism/results", "maxSessions=1", "execSessions=0", "failClosed=0", "readySeconds=10", "reportSeconds=60", "termSeconds=20",
		"stopSeconds=5", "",
	}, strings.Split(string(encoded), "\x00")[7:])
}

func TestEncode_Manual_SwitchesOfBothCommands(t *testing.T) {
	t.Parallel()
	encoded, err := runplan.Plan{Tool: "/nsys", Switches: []string{"--trace=osrt"}, Manual: true, StartSwitches: []string{"--sample=none", "--cpuctxsw=none"}}.Encode()
	require.NoError(t, err)
	assert.Equal(t, []string{"switch=--trace=osrt", "manual=1", "startSwitch=--sample=none", "startSwitch=--cpuctxsw=none"},
		strings.Split(string(encoded), "\x00")[7:11])
}

func TestEncode_InvalidPlan_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan runplan.Plan
		want string
	}{
		"no tool":        {runplan.Plan{}, `tool must be an absolute path without "..", got ""`},
		"relative tool":  {runplan.Plan{Tool: "nsys"}, `tool must be an absolute path`},
		"folder upwards": {runplan.Plan{Tool: "/nsys", Dir: "/a/../b"}, `dir must be an absolute path without "..", got "/a/../b"`},
		"null byte":      {runplan.Plan{Tool: "/nsys", Switches: []string{"a\x00claim=b"}}, "switch contains a null byte"},
		"start switches": {runplan.Plan{Tool: "/nsys", StartSwitches: []string{"--sample=none"}}, "startSwitches require manual"},
		"no name":        {runplan.Plan{Tool: "/nsys", Env: []string{"=a"}}, `env must be NAME=value, got "=a"`},
		"many sessions":  {runplan.Plan{Tool: "/nsys", MaxSessions: 17}, "maxSessions must be less than or equal to 16, got 17"},
		"half seconds":   {runplan.Plan{Tool: "/nsys", Ready: time.Second / 2}, "deadlines must be whole seconds up to 24h, got 500ms"},
		"negative":       {runplan.Plan{Tool: "/nsys", Stop: -time.Second}, "deadlines must be whole seconds up to 24h, got -1s"},
		"too long":       {runplan.Plan{Tool: "/nsys", File: strings.Repeat("x", 1<<20)}, "must be at most 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.plan.Encode()
			require.ErrorContains(t, err, c.want)
		})
	}
}
