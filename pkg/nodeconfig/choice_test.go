package nodeconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

// usual are the fallbacks of the chart.
var usual = []nodeconfig.Fallback{nodeconfig.FallbackNamed, nodeconfig.FallbackSingle}

func TestPick_LabelDefaultFallback_Chosen(t *testing.T) {
	t.Parallel()
	const other = header + "gpus: [{modes: [mig]}]\n"
	empty := []nodeconfig.Fallback{nodeconfig.FallbackEmpty}
	for name, c := range map[string]struct {
		data   map[string]string
		choice nodeconfig.Choice
		none   bool
	}{
		"the only one":            {map[string]string{"h100": partitioned}, nodeconfig.Choice{Fallbacks: usual}, false},
		"by label":                {map[string]string{"a30": other, "h100": partitioned}, nodeconfig.Choice{Label: "h100", Default: "a30"}, false},
		"by default":              {map[string]string{"a30": other, "h100": partitioned}, nodeconfig.Choice{Default: "h100"}, false},
		"called default":          {map[string]string{"a30": other, "default": partitioned}, nodeconfig.Choice{Fallbacks: usual}, false},
		"the only one before all": {map[string]string{"h100": partitioned}, nodeconfig.Choice{Fallbacks: append(usual, empty...)}, false},
		"beside a bad one":        {map[string]string{"a30": "?", "h100": partitioned}, nodeconfig.Choice{Label: "h100"}, false},
		"none of several":         {map[string]string{"a30": other, "h100": partitioned}, nodeconfig.Choice{Fallbacks: append(usual, empty...)}, true},
		"none of none":            {nil, nodeconfig.Choice{Fallbacks: empty}, true},
		"no entry yet":            {nil, nodeconfig.Choice{Fallbacks: usual}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := nodeconfig.Pick(c.data, c.choice)
			require.NoError(t, err)
			assert.Empty(t, warnings)
			if c.none {
				assert.Nil(t, got)
				return
			}
			want, _, err := nodeconfig.Parse([]byte(partitioned), "")
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(want, got))
		})
	}
}

func TestPick_NoEntry_Refused(t *testing.T) {
	t.Parallel()
	two := map[string]string{"h100": partitioned, "a30.yaml": partitioned}
	all := nodeconfig.Fallbacks
	for name, c := range map[string]struct {
		data   map[string]string
		choice nodeconfig.Choice
		want   string
	}{
		"none, but named": {map[string]string{}, nodeconfig.Choice{Default: "h100", Fallbacks: all},
			"specified config h100 does not exist; it is the default: there is no entry; add one with a NodeConfig"},
		"none is chosen": {two, nodeconfig.Choice{Fallbacks: usual},
			"no config was set, no default was provided, and all fallbacks failed; label the node or set a default: there are: a30.yaml, h100"},
		"a label of nothing": {two, nodeconfig.Choice{Label: "h200", LabelKey: "nvidia.com/device-plugin.config", Default: "h100", Fallbacks: all},
			"specified config h200 does not exist; the node's label nvidia.com/device-plugin.config names it: there are: a30.yaml, h100"},
		"letters count":    {map[string]string{"h100": partitioned}, nodeconfig.Choice{Default: "H100"}, "specified config H100 does not exist; it is the default: there are: h100"},
		"unknown fallback": {two, nodeconfig.Choice{Fallbacks: []nodeconfig.Fallback{"first"}}, "unknown fallback strategy: first; allowed: named, single, empty"},
		"bad content": {map[string]string{"h100": header + "flags: {migStrategy: all}"}, nodeconfig.Choice{Fallbacks: usual},
			`reading the node configuration in entry h100: NodeConfig: flags.migStrategy: unsupported value "all"; supported values: none, single, mixed`},
		"empty content": {map[string]string{"h100": "", "a30": partitioned}, nodeconfig.Choice{Label: "h100"},
			"reading the node configuration in entry h100: the configuration must be an object with apiVersion and kind, got an empty document"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := nodeconfig.Pick(c.data, c.choice)
			assert.Nil(t, got)
			assert.Empty(t, warnings)
			assert.EqualError(t, err, c.want)
		})
	}
}
