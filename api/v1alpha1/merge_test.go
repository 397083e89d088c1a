package v1alpha1

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func gpuConfig(t *testing.T, raw string) *GPUConfig {
	t.Helper()
	config, err := Decode([]byte(gpuHeader + raw))
	require.NoError(t, err)
	return config.(*GPUConfig)
}

func TestMerge_Layers_OverrideByField(t *testing.T) {
	for name, test := range map[string]struct{ base, override, want string }{
		"nothing":                  {"", "", ""},
		"base stays":               {"enforceMemory: true", "", "enforceMemory: true"},
		"override wins":            {"enforceMemory: true", "enforceMemory: false", "enforceMemory: false"},
		"sharing comes":            {"", "sharing: {strategy: MPS}", "sharing: {strategy: MPS}"},
		"sharing stays":            {"sharing: {strategy: MPS}", "sharing: {}", "sharing: {strategy: MPS}"},
		"fields of mps":            {"sharing: {mps: {memoryLimit: 1Gi, activeThreadPercentage: 50}}", "sharing: {mps: {activeThreadPercentage: 0}}", "sharing: {mps: {memoryLimit: 1Gi, activeThreadPercentage: 0}}"},
		"limit of mps":             {"sharing: {mps: {memoryLimit: 1Gi}}", "sharing: {mps: {memoryLimit: 2Gi}}", "sharing: {mps: {memoryLimit: 2Gi}}"},
		"settings after strategy":  {"sharing: {strategy: MPS}", "sharing: {mps: {memoryLimit: 2Gi}}", "sharing: {strategy: MPS, mps: {memoryLimit: 2Gi}}"},
		"interval":                 {"sharing: {timeSlicing: {interval: Long}}", "sharing: {timeSlicing: {interval: Short}}", "sharing: {timeSlicing: {interval: Short}}"},
		"interval stays":           {"sharing: {timeSlicing: {interval: Long}}", "sharing: {timeSlicing: {}}", "sharing: {timeSlicing: {interval: Long}}"},
		"other strategy":           {"sharing: {strategy: MPS, mps: {memoryLimit: 1Gi}}", "sharing: {strategy: TimeSlicing}", "sharing: {strategy: TimeSlicing}"},
		"other strategy, implied":  {"sharing: {strategy: MPS, mps: {memoryLimit: 1Gi}}", "sharing: {timeSlicing: {interval: Long}}", "sharing: {timeSlicing: {interval: Long}}"},
		"other strategy, by class": {"sharing: {timeSlicing: {interval: Long}}", "sharing: {mps: {memoryLimit: 1Gi}}", "sharing: {mps: {memoryLimit: 1Gi}}"},
	} {
		t.Run(name, func(t *testing.T) {
			base, override := gpuConfig(t, test.base), gpuConfig(t, test.override)
			merged, err := Merge(base, override, FromClaim)
			require.NoError(t, err)
			if diff := cmp.Diff(gpuConfig(t, test.want), merged); diff != "" {
				t.Errorf("merged (-want +got):\n%s", diff)
			}
			merged.Default()
			require.NoError(t, merged.Validate())
			if diff := cmp.Diff(gpuConfig(t, test.base), base); diff != "" {
				t.Errorf("base was changed (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(gpuConfig(t, test.override), override); diff != "" {
				t.Errorf("override was changed (-before +after):\n%s", diff)
			}
		})
	}
}

// TestMerge_EveryField_Merged fails if a new field is not merged.
func TestMerge_EveryField_Merged(t *testing.T) {
	for _, raw := range []string{
		"enforceMemory: true\nclaimOverride: Allowed\nsharing: {strategy: MPS, mps: {memoryLimit: 1Gi, activeThreadPercentage: 5}}",
		"sharing: {strategy: TimeSlicing, timeSlicing: {interval: Long}}",
	} {
		full := gpuConfig(t, raw)
		for _, layers := range [][2]*GPUConfig{{full, nil}, {nil, full}, {full, gpuConfig(t, "")}, {gpuConfig(t, ""), full}} {
			merged, err := Merge(layers[0], layers[1], FromClass)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(full, merged))
		}
	}
	merged, err := Merge(nil, nil, FromNode)
	require.NoError(t, err)
	assert.Equal(t, &GPUConfig{}, merged)
}

func TestMerge_ClaimOverride_Enforced(t *testing.T) {
	forbidden := gpuConfig(t, "claimOverride: Forbidden\nenforceMemory: true")
	for name, test := range map[string]struct {
		base     *GPUConfig
		override string
		from     Source
		want     string
	}{
		"claim may not allow itself": {forbidden, "claimOverride: Allowed", FromClaim,
			"GPUConfig: claimOverride: must not be set by a ResourceClaim; only a DeviceClass may set it"},
		"nor may a node": {nil, "claimOverride: Forbidden", FromNode,
			"GPUConfig: claimOverride: must not be set by a node; only a DeviceClass may set it"},
		"claim may not override": {forbidden, "enforceMemory: false\nsharing: {strategy: MPS}", FromClaim,
			"GPUConfig: sharing: must not be set by the claim: claimOverride of the DeviceClass is Forbidden; remove it or use another class; " +
				"enforceMemory: must not be set by the claim: claimOverride of the DeviceClass is Forbidden; remove it or use another class"},
		"claim that sets nothing":   {forbidden, "", FromClaim, ""},
		"class may":                 {forbidden, "claimOverride: Allowed\nenforceMemory: false", FromClass, ""},
		"allowed is no hindrance":   {gpuConfig(t, "claimOverride: Allowed"), "enforceMemory: true", FromClaim, ""},
		"unset is no hindrance":     {gpuConfig(t, ""), "enforceMemory: true", FromClaim, ""},
		"no base is no hindrance":   {nil, "enforceMemory: true", FromClaim, ""},
		"node under a class's word": {forbidden, "enforceMemory: true", FromNode, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Merge(test.base, gpuConfig(t, test.override), test.from)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}

// setAll sets every field to a zero value that is not nil, and the fields below it.
func setAll(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setAll(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				setAll(v.Field(i))
			}
		}
	default:
	}
}

// TestMerge_EveryField_Kept: Merge and set list the fields, and a new one must not be dropped silently.
func TestMerge_EveryField_Kept(t *testing.T) {
	t.Parallel()
	all := &GPUConfig{}
	setAll(reflect.ValueOf(all).Elem())
	for _, layers := range [][2]*GPUConfig{{nil, all}, {all, nil}, {all, all}} {
		merged, err := Merge(layers[0], layers[1], FromClass)
		require.NoError(t, err)
		assert.Equal(t, all, merged)
	}
	var fields []string
	for i, of := 0, reflect.TypeFor[GPUConfig](); i < of.NumField(); i++ {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "" && name != "claimOverride" {
			fields = append(fields, name)
		}
	}
	assert.ElementsMatch(t, fields, all.set())
}
