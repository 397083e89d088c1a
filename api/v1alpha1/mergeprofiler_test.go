package v1alpha1

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func profilerConfig(t testing.TB, raw string) *ProfilerConfig {
	t.Helper()
	config, err := Decode([]byte(profilerHeader + raw))
	require.NoError(t, err)
	return config.(*ProfilerConfig)
}

func TestMergeProfiler_Layers_OverrideByField(t *testing.T) {
	for name, test := range map[string]struct{ base, override, want string }{
		"nothing":       {"", "", ""},
		"base stays":    {"trace: [cuda]\noutput: {maxBytes: 1Gi}", "", "trace: [cuda]\noutput: {maxBytes: 1Gi}"},
		"override wins": {"duration: 1m", "duration: 2m", "duration: 2m"},
		"opt out":       {"trace: [cuda]", "enabled: false", "enabled: false\ntrace: [cuda]"},
		"fields of match": {"match: {regex: a, maxSessions: 2}", "match: {regex: b, exclude: [c]}",
			"match: {regex: b, maxSessions: 2, exclude: [c]}"},
		"fields of output": {"output: {type: ContainerPath, path: /a}", "output: {fileName: '{POD}'}",
			"output: {type: ContainerPath, path: /a, fileName: '{POD}'}"},
		"list replaced":      {"containers: [a, b]\nargs: [--cuda-memory-usage=true]", "containers: [c]", "containers: [c]\nargs: [--cuda-memory-usage=true]"},
		"list emptied":       {"match: {exclude: [a]}\ntrace: [cuda]", "match: {exclude: []}\ntrace: []", "match: {exclude: []}\ntrace: []"},
		"class taken back":   {"start: NVTX\nnvtxRange: a", "start: Immediate\nnvtxRange: ''", "start: Immediate\nnvtxRange: ''"},
		"another place":      {"output: {type: ContainerPath, path: /a}", "output: {type: Node, path: ''}", "output: {type: Node, path: ''}"},
		"by hand, and back":  {"start: Manual\narm: OnDemand", "start: Immediate\narm: Always", "start: Immediate\narm: Always"},
		"delay taken back":   {"delay: 30s\narm: OnDemand", "start: Manual\ndelay: 0s", "start: Manual\ndelay: 0s\narm: OnDemand"},
		"false over true":    {"captureEnvironment: true", "captureEnvironment: false", "captureEnvironment: false"},
		"version taken back": {"toolVersion: 2025.5.1", "toolVersion: ''", "toolVersion: ''"},
	} {
		t.Run(name, func(t *testing.T) {
			base, override := profilerConfig(t, test.base), profilerConfig(t, test.override)
			merged, err := MergeProfiler(base, override, FromClaim)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(profilerConfig(t, test.want), merged))
			merged.Default()
			require.NoError(t, merged.Validate())
			assert.Empty(t, cmp.Diff(profilerConfig(t, test.base), base), "base was changed")
			assert.Empty(t, cmp.Diff(profilerConfig(t, test.override), override), "override was changed")
		})
	}
}

// TestMergeProfiler_EveryField_MergedAndIndependent fails if a new field is not merged, or if the result shares it with a layer.
func TestMergeProfiler_EveryField_MergedAndIndependent(t *testing.T) {
	raw, err := os.ReadFile("testdata/profilerconfig.yaml")
	require.NoError(t, err)
	decoded := func() *ProfilerConfig {
		config, err := Decode(raw)
		require.NoError(t, err)
		return config.(*ProfilerConfig)
	}
	for _, layers := range [][2]*ProfilerConfig{{decoded(), nil}, {nil, decoded()}, {decoded(), {}}, {{}, decoded()}} {
		merged, err := MergeProfiler(layers[0], layers[1], FromClass)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(decoded(), merged))
		merged.Trace[0], merged.Match.Exclude[0], *merged.Match.Regex, *merged.Output.Upload.SecretClass = "osrt", "x", "x", "x"
		merged.Output.MaxBytes.Add(merged.Output.MaxBytes.DeepCopy())
		for _, layer := range layers {
			if layer != nil && layer.Match != nil {
				require.Empty(t, cmp.Diff(decoded(), layer))
			}
		}
	}
}

func TestMergeProfiler_ClaimOverride_Enforced(t *testing.T) {
	forbidden := profilerConfig(t, "claimOverride: Forbidden\ntrace: [cuda]")
	for name, test := range map[string]struct {
		base     *ProfilerConfig
		override string
		from     Source
		want     string
	}{
		"claim may not allow itself": {forbidden, "claimOverride: Allowed", FromClaim,
			"ProfilerConfig: claimOverride: must not be set by a ResourceClaim; only a DeviceClass may set it"},
		"nor may defaults": {nil, "claimOverride: Allowed", FromDefaults,
			"ProfilerConfig: claimOverride: must not be set by a cluster default; only a DeviceClass may set it"},
		"claim may not opt out": {forbidden, "enabled: false\nmatch: {regex: a}", FromClaim,
			"ProfilerConfig: enabled: must not be set by the claim: claimOverride of the DeviceClass is Forbidden; remove it or use another class; " +
				"match: must not be set by the claim: claimOverride of the DeviceClass is Forbidden; remove it or use another class"},
		"claim that sets nothing": {forbidden, "", FromClaim, ""},
		"defaults may":            {forbidden, "trace: [nvtx]", FromDefaults, ""},
		"class may":               {forbidden, "claimOverride: Allowed\ntrace: [nvtx]", FromClass, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := MergeProfiler(test.base, profilerConfig(t, test.override), test.from)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}

// TestProfilerConfig_Sessions_DefaultByRegex: with a regex every matching process is profiled, otherwise the first process.
func TestProfilerConfig_Sessions_DefaultByRegex(t *testing.T) {
	for raw, want := range map[string]int32{"": 1, "match: {regex: ''}": 1, "match: {regex: a}": 16, "match: {regex: a, maxSessions: 3}": 3} {
		config := profilerConfig(t, raw)
		config.Default()
		assert.Equal(t, want, *config.Match.MaxSessions, raw)
	}
}

// TestMergeProfiler_OtherCaptureRange_InheritedDropped: only fields of lower layers are dropped if they have no effect with it.
func TestMergeProfiler_OtherCaptureRange_InheritedDropped(t *testing.T) {
	const ranges = "start: CUDAProfilerAPI\ncaptureRange: Repeat\nmaxRanges: 4"
	const none = "maxRanges: has no effect with captureRange First; remove it or set captureRange to Repeat"
	for name, test := range map[string]struct {
		layers []string
		want   string
		err    string
	}{
		"back to First":           {[]string{ranges, "captureRange: First"}, "start: CUDAProfilerAPI", ""},
		"to Repeat":               {[]string{"start: CUDAProfilerAPI\nduration: 1m", "captureRange: Repeat"}, "start: CUDAProfilerAPI\ncaptureRange: Repeat", ""},
		"there and back":          {[]string{"start: CUDAProfilerAPI\nduration: 1m", ranges, "captureRange: First"}, "start: CUDAProfilerAPI", ""},
		"back and there":          {[]string{ranges, "captureRange: First", "captureRange: Repeat"}, "start: CUDAProfilerAPI\ncaptureRange: Repeat", ""},
		"back with a duration":    {[]string{ranges, "captureRange: First\nduration: 2m"}, "start: CUDAProfilerAPI\nduration: 2m", ""},
		"Repeat again":            {[]string{ranges, "captureRange: Repeat"}, ranges, ""},
		"maxRanges over First":    {[]string{"captureRange: First", "maxRanges: 2"}, "", none},
		"duration over Repeat":    {[]string{ranges, "duration: 2m"}, "", "duration: must not be set with captureRange Repeat, which records each range to its end; remove it"},
		"maxRanges after a First": {[]string{ranges, "captureRange: First", "maxRanges: 2"}, "", none},
	} {
		t.Run(name, func(t *testing.T) {
			var merged *ProfilerConfig
			for _, layer := range test.layers {
				var err error
				merged, err = MergeProfiler(merged, profilerConfig(t, layer), FromClaim)
				require.NoError(t, err)
			}
			merged.Default()
			if test.err != "" {
				require.ErrorContains(t, merged.Validate(), test.err)
				return
			}
			require.NoError(t, merged.Validate())
			want := profilerConfig(t, test.want)
			want.Default()
			assert.Empty(t, cmp.Diff(want, merged))
		})
	}
}

// TestProfilerConfig_Manual_StartOrMode: before and after defaults, mode Launch is the same as start Manual.
func TestProfilerConfig_Manual_StartOrMode(t *testing.T) {
	for raw, want := range map[string]bool{
		"": false, "start: CUDAProfilerAPI": false, "mode: Profile": false, "mode: Launch": true, "start: Manual": true, "mode: Profile\nstart: Manual": true,
		"mode: Launch\nstart: Immediate": true,
	} {
		config := profilerConfig(t, raw)
		assert.Equal(t, want, config.Manual(), raw)
		config.Default()
		assert.Equal(t, want, config.Manual(), raw)
		require.NoError(t, config.Validate(), raw)
	}
}

// FuzzMergeProfiler checks that layers can be merged in any grouping, and that a valid layer never makes the merge fail.
func FuzzMergeProfiler(f *testing.F) {
	for _, layers := range [][3]string{
		{"", "", ""},
		{"trace: [cuda]", "trace: []", "match: {regex: a}"},
		{"output: {type: ContainerPath, path: /a}", "output: {type: Node, path: ''}", "output: {maxBytes: 1Gi}"},
		{"match: {regex: a, exclude: [b]}", "match: {maxSessions: 2}", "enabled: false"},
		{"start: NVTX\nnvtxRange: a", "nvtxRange: ''", "start: Immediate"},
		{"duration: 1m", "captureRange: Repeat", "captureRange: First"},
		{"maxRanges: 4", "captureRange: First", "captureRange: Repeat"},
		{"captureRange: Repeat\nmaxRanges: 4", "captureRange: First\nduration: 1m", "captureRange: Repeat"},
		{"captureRange: Repeat", "duration: 1m", "captureRange: Repeat"},
		{"captureRange: First", "captureRange: Repeat\nmaxRanges: 2", "captureRange: First"},
		{"start: Manual\narm: OnDemand", "mode: Launch\ndelay: 0s", "arm: Always"},
	} {
		f.Add([]byte(layers[0]), []byte(layers[1]), []byte(layers[2]))
	}
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var layers [3]*ProfilerConfig
		for i, raw := range [][]byte{a, b, c} {
			config, err := Decode(append([]byte(profilerHeader), raw...))
			if err != nil {
				return
			}
			layers[i], _ = config.(*ProfilerConfig)
		}
		merge := func(base, override *ProfilerConfig) *ProfilerConfig {
			merged, err := MergeProfiler(base, override, FromClass)
			require.NoError(t, err)
			return merged
		}
		left := merge(merge(layers[0], layers[1]), layers[2])
		right := merge(layers[0], merge(layers[1], layers[2]))
		require.Empty(t, cmp.Diff(left, right))
		left.Default()
		raw, err := yaml.Marshal(left)
		require.NoError(t, err)
		if left.Validate() == nil {
			_, err := Decode(raw)
			require.NoError(t, err, "merged, written and read again:\n%s", raw)
		}
	})
}
