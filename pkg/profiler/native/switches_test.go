package native

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/pattern"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
)

// TestRun_EnvironmentNotCaptured_ToolLeavesItOut: from the help of a tool with the switch, through the plan, to the switch of its start.
func TestRun_EnvironmentNotCaptured_ToolLeavesItOut(t *testing.T) {
	t.Parallel()
	help, err := exec.CommandContext(t.Context(), "testdata/nsys", "profile", "--help").CombinedOutput()
	require.NoError(t, err, string(help))
	tool := plan.Tool{Tool: nsight.Tool{Version: "2025.5.1", Switches: nsight.Switches(string(help))}, Nsys: "target-linux-x64/nsys"}
	for fields, discards := range map[string]bool{`"captureEnvironment":false`: true, `"captureEnvironment":true`: false} {
		c := newContainer(t, nil)
		record := &checkpoint.Record{
			Extensions: checkpoint.Extensions{
				"profile": json.RawMessage(`{"match":{"regex":"profiled","useDefaultExcludes":false},"trace":["osrt"],` + fields + `}`),
			},
			Results: []checkpoint.Result{{GPUUUID: "GPU-1", Extensions: checkpoint.Extensions{"profile": json.RawMessage("{}")}}},
		}
		config, err := plan.Config(record)
		require.NoError(t, err)
		require.NoError(t, config.Validate())
		files, err := plan.Files(record, config, tool, plan.Host{Node: "node-a"}, pattern.NewCache(1))
		require.NoError(t, err)
		for name, content := range files {
			require.NoError(t, os.WriteFile(filepath.Join(c.Plan, name), content, 0o644))
		}
		code, output := c.run(t, c.script(t, "exit 6")...)
		assert.Equal(t, 6, code, output)
		assert.Equal(t, finished, c.one(t)["state"])
		switches, err := os.ReadFile(filepath.Join(c.Work, "switches"))
		require.NoError(t, err)
		assert.Equal(t, discards, strings.Contains(string(switches), "--discard-environment=true"), string(switches))
	}
}
