package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// loadHealth loads the plugin's configuration with these arguments and environment variables.
func loadHealth(t *testing.T, env map[string]string, args ...string) (*Health, error) {
	t.Helper()
	p, err := LoadPlugin(append([]string{"--node-name=n0"}, args...), func(name string) string { return env[name] })
	if err != nil {
		return nil, err
	}
	return &p.Health, nil
}

func TestHealth_BadInput_OneSentence(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--health-xids=0=Taint":                 `--health-xids: codes must be from 1 to 999, got "0"`,
		"--health-xids=1000=Taint":              `--health-xids: codes must be from 1 to 999, got "1000"`,
		"--health-xids=079=Taint":               `--health-xids: codes must be from 1 to 999, got "079"`,
		"--health-xids=x":                       `--health-xids: codes must be from 1 to 999, got "x"`,
		"--health-xids=79=taint,48=Ignore":      `--health-xids: unsupported value "taint" of code 79; supported values: Taint, Ignore`,
		"--health-xids=79":                      `--health-xids: unsupported value "" of code 79; supported values: Taint, Ignore`,
		"--health-no-execute=xid,nosuch,other":  `--health-no-execute: unknown key "nosuch"; valid keys: gpu-lost, recovery-action, xid, memory, fabric, node-condition, maintenance`,
		"--health-no-execute=unmonitored":       `--health-no-execute: unknown key "unmonitored"; valid keys: gpu-lost, recovery-action, xid, memory, fabric, node-condition, maintenance`,
		"--health-node-conditions=Gpu Xid":      `--health-node-conditions: must be types of conditions without a prefix, such as GpuXidError, got "Gpu Xid"`,
		"--health-node-conditions=Ok,":          `--health-node-conditions: must be types of conditions without a prefix, such as GpuXidError, got ""`,
		"--health-node-conditions=x.io/GpuLost": `--health-node-conditions: must be types of conditions without a prefix, such as GpuXidError, got "x.io/GpuLost"`,
	} {
		_, err := loadHealth(t, nil, args)
		assert.EqualError(t, err, want, args)
	}
}

func TestHealth_FlagsAndFile_SameResult(t *testing.T) {
	t.Parallel()
	want := &Health{XIDs: XIDActions{"45": "Taint", "74": "Ignore"}, NoExecute: Names{"xid", "gpu-lost"}, NodeConditions: Names{"GpuXidError"}}
	h, err := loadHealth(t, nil, "--health-xids=74=Ignore,45=Taint", "--health-no-execute=xid,gpu-lost", "--health-node-conditions=GpuXidError")
	require.NoError(t, err)
	assert.Equal(t, want, h)
	assert.Equal(t, "45=Taint,74=Ignore", h.XIDs.String())
	h, err = loadHealth(t, map[string]string{
		"PRISM_HEALTH_XIDS": "45=Taint,74=Ignore", "PRISM_HEALTH_NO_EXECUTE": "xid,gpu-lost", "PRISM_HEALTH_NODE_CONDITIONS": "GpuXidError",
	})
	require.NoError(t, err)
	assert.Equal(t, want, h)
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`health: {xids: {"45": Taint, "74": Ignore}, noExecute: [xid, gpu-lost], nodeConditions: [GpuXidError]}`), 0o600))
	h, err = loadHealth(t, nil, "--config="+file)
	require.NoError(t, err)
	assert.Equal(t, want, h)
}

// TestHealth_VariablesOfTheDevicePlugin_SameMeaning: enabled codes take precedence over disabled ones, and health.xids over both.
func TestHealth_VariablesOfTheDevicePlugin_SameMeaning(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for _, c := range []struct {
		disable, enable, xids string
		codes                 map[uint64]bool
		others                *bool
	}{
		{codes: map[uint64]bool{}},
		{disable: "79, 48,x,", codes: map[uint64]bool{79: false, 48: false}},
		{disable: "79,48", enable: "48,13", codes: map[uint64]bool{79: false, 48: true, 13: true}},
		{disable: "All", codes: map[uint64]bool{}, others: &no},
		{disable: "48,xids", enable: "79", codes: map[uint64]bool{79: true}, others: &no},
		{disable: "48", enable: "all", codes: map[uint64]bool{}, others: &yes},
		{disable: "48", enable: "79", xids: "48=Taint,79=Ignore", codes: map[uint64]bool{48: true, 79: false}},
	} {
		h, err := loadHealth(t, map[string]string{"DP_DISABLE_HEALTHCHECKS": c.disable, "DP_ENABLE_HEALTHCHECKS": c.enable}, "--health-xids="+c.xids)
		require.NoError(t, err)
		codes, others := h.XIDDecisions()
		assert.Equal(t, c.codes, codes, "%+v", c)
		assert.Equal(t, c.others, others, "%+v", c)
	}
}
