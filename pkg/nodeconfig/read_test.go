package nodeconfig_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

const (
	header      = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n"
	partitioned = header + "gpus: [{select: {indices: [0]}, modes: [whole, mig]}, {}]\n"
)

func TestParse_NodeConfig_Read(t *testing.T) {
	t.Parallel()
	want := config(t, "[{select: {indices: [0]}, modes: [whole, mig]}, {}]")
	for name, raw := range map[string]string{
		"YAML": partitioned,
		"JSON": `{"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "NodeConfig", "gpus": [{"select": {"indices": [0]}, "modes": ["whole", "mig"]}, {}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := nodeconfig.Parse([]byte(raw), "file node.yaml")
			require.NoError(t, err)
			assert.Empty(t, warnings)
			assert.Empty(t, cmp.Diff(want, got))
			assert.Equal(t, []v1alpha1.Mode{v1alpha1.ModeWhole}, got.GPUs[1].Modes, "defaults are filled in")
			assert.Equal(t, v1alpha1.MIGStrategyMixed, *got.Flags.MIGStrategy)
		})
	}
}

func TestParse_Invalid_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ raw, want string }{
		"nothing":        {"", "the configuration must be an object with apiVersion and kind, got an empty document"},
		"another object": {"apiVersion: v1\nkind: ConfigMap\n", `apiVersion: unsupported value "v1"; supported values: gpu.prism.dev/v1alpha1; or only version: v1 in a file of NVIDIA's device plugin; kind: unsupported value "ConfigMap"; supported values: NodeConfig`},
		"another field":  {header + "gpu: []\n", `NodeConfig: unknown field "gpu"; valid fields: kind, apiVersion, flags, gpus`},
		"a bad value": {header + "gpus: [{modes: [mig], mig: {profiles: [1g]}}]",
			`NodeConfig: gpus[0].mig.profiles[0]: must be a MIG profile as nvidia-smi mig -lgip prints it, for example 1g.10gb or 1g.10gb+me, got "1g"`},
		"two problems": {header + "gpus: [{modes: []}, {}]",
			"NodeConfig: gpus[0].modes: must not be empty; supported values: whole, mig, mps, timeslice; " +
				"gpus[1]: select is required: gpus[0] already matches the remaining GPUs, because it sets no select"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := nodeconfig.Parse([]byte(c.raw), "file node.yaml")
			assert.Nil(t, got)
			assert.Empty(t, warnings)
			require.EqualError(t, err, "reading the node configuration in file node.yaml: "+c.want)
			var problems *v1alpha1.Problems
			assert.ErrorAs(t, err, &problems)
		})
	}
}

// However long, a text is refused and not read.
func TestParse_LongText_Shortened(t *testing.T) {
	t.Parallel()
	_, _, err := nodeconfig.Parse([]byte(header+"# "+strings.Repeat("x", v1alpha1.MaxNodeConfigBytes)), "file node.yaml")
	assert.ErrorContains(t, err, "reading the node configuration in file node.yaml: ")
}
