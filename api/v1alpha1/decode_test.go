package v1alpha1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	gpuHeader      = "apiVersion: gpu.prism.dev/v1alpha1\nkind: GPUConfig\n"
	profilerHeader = "apiVersion: gpu.prism.dev/v1alpha1\nkind: ProfilerConfig\n"
	metricsHeader  = "apiVersion: gpu.prism.dev/v1alpha1\nkind: GPUMetricsConfig\n"
	nodeHeader     = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n"
	jsonHeader     = `"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig"`
)

func TestDecode_InvalidConfig_Refused(t *testing.T) {
	for name, test := range map[string]struct{ raw, want string }{
		"nothing":             {"", "the configuration must be an object with apiVersion and kind, got an empty document"},
		"a comment only":      {"# nothing\n", "the configuration must be an object with apiVersion and kind, got an empty document"},
		"a list":              {"[1]", "the configuration must be an object with apiVersion and kind, got an array"},
		"a text":              {"hello", `the configuration must be an object with apiVersion and kind, got string "hello"`},
		"too long":            {gpuHeader + strings.Repeat("#", MaxConfigBytes), "the configuration must be at most 10240 bytes, got 10291"},
		"not UTF-8":           {"kind: \xff", "the configuration must be UTF-8 text"},
		"broken JSON":         {`{"kind":`, "reading the configuration: unexpected EOF"},
		"broken JSON value":   {`{"kind": nope}`, "reading the configuration: invalid character 'o' in literal null (expecting 'u')"},
		"broken JSON key":     {`{1: 2}`, "reading the configuration: invalid character '1'"},
		"broken JSON list":    {`{"a": [1 2]}`, "reading the configuration: invalid character '2' after array element"},
		"more JSON":           {`{} {}`, "reading the configuration: text after the end of the object at byte 4"},
		"broken YAML":         {"kind: [", "reading the configuration: yaml: line 1: did not find expected node content"},
		"YAML key twice":      {"kind: a\nkind: b", `reading the configuration: line 2: duplicate key "kind"`},
		"two documents":       {gpuHeader + "---\n" + gpuHeader, "reading the configuration: must be one YAML document, got 2"},
		"no header":           {"sharing: {}", "apiVersion: required and must be a string; supported values: gpu.prism.dev/v1alpha1; kind: required and must be a string; supported values: GPUConfig, GPUMetricsConfig, ProfilerConfig"},
		"header of a type":    {"apiVersion: 1\nkind: {}", "apiVersion: required and must be a string; supported values: gpu.prism.dev/v1alpha1; kind: required and must be a string; supported values: GPUConfig, GPUMetricsConfig, ProfilerConfig"},
		"wrong group":         {"apiVersion: resource.nvidia.com/v1beta1\nkind: GpuConfig", `apiVersion: unsupported value "resource.nvidia.com/v1beta1"; supported values: gpu.prism.dev/v1alpha1; kind: unsupported value "GpuConfig"; supported values: GPUConfig`},
		"node configuration":  {nodeHeader, `kind: unsupported value "NodeConfig"; supported values: GPUConfig, GPUMetricsConfig, ProfilerConfig`},
		"JSON kind twice":     {`{` + jsonHeader + `,"kind":"GPUConfig"}`, `GPUConfig: duplicate field "kind"`},
		"JSON key twice":      {`{` + jsonHeader + `,"sharing":{"strategy":"MPS","strategy":"MPS"}}`, `GPUConfig: sharing: duplicate field "strategy"`},
		"unknown field":       {gpuHeader + "sharing: {strategie: MPS}", `GPUConfig: sharing: unknown field "strategie"; valid fields: strategy, timeSlicing, mps`},
		"field in other case": {gpuHeader + "EnforceMemory: true", `GPUConfig: unknown field "EnforceMemory"; valid fields: kind, apiVersion, sharing, enforceMemory, claimOverride`},
		"unprintable field":   {`{` + jsonHeader + `,"a\nb":1,"":2}`, `GPUConfig: unknown field "a\nb"; valid fields: kind, apiVersion, sharing, enforceMemory, claimOverride; unknown field ""; valid fields: kind, apiVersion, sharing, enforceMemory, claimOverride`},
		"text for object":     {gpuHeader + "sharing: MPS", `GPUConfig: sharing: must be an object, got string "MPS"`},
		"object for text":     {gpuHeader + "claimOverride: {a: [1, {b: c}]}", "GPUConfig: claimOverride: must be a string, got an object"},
		"text for bool":       {gpuHeader + `enforceMemory: "true"`, `GPUConfig: enforceMemory: must be a boolean, got string "true"`},
		"text for number":     {gpuHeader + `sharing: {mps: {activeThreadPercentage: "50"}}`, `sharing.mps.activeThreadPercentage: must be an integer, got string "50"`},
		"part of a number":    {gpuHeader + `sharing: {mps: {activeThreadPercentage: 12.5}}`, "sharing.mps.activeThreadPercentage: must be an integer, got number 12.5"},
		"quantity":            {gpuHeader + `sharing: {mps: {memoryLimit: lots}}`, `sharing.mps.memoryLimit: must be a quantity such as "8Gi", got string "lots"`},
		"quantity of a type":  {gpuHeader + `sharing: {mps: {memoryLimit: [1]}}`, `sharing.mps.memoryLimit: must be a quantity such as "8Gi", got an array`},
		"endless quantity":    {gpuHeader + `sharing: {mps: {memoryLimit: "1e-2147483647"}}`, `sharing.mps.memoryLimit: must be a quantity such as "8Gi", got string "1e-2147483647"`},
		"duration":            {profilerHeader + "delay: soon", `ProfilerConfig: delay: must be a duration such as "90s", got string "soon"`},
		"duration of a type":  {profilerHeader + "delay: {a: 1}", `ProfilerConfig: delay: must be a duration such as "90s", got an object`},
		"number for duration": {profilerHeader + "delay: 30", `ProfilerConfig: delay: must be a duration such as "90s", got number 30`},
		"text for list":       {profilerHeader + "trace: cuda", `ProfilerConfig: trace: must be an array, got string "cuda"`},
		"null in a list":      {profilerHeader + "trace: [null]", "ProfilerConfig: trace[0]: must not be null"},
		"number in a list":    {profilerHeader + "trace: [1]", "ProfilerConfig: trace[0]: must be a string, got number 1"},
		"list for map":        {metricsHeader + "labels: [a]", "GPUMetricsConfig: labels: must be an object, got an array"},
		"number in a map":     {metricsHeader + "labels: {a: 1}", "GPUMetricsConfig: labels[a]: must be a string, got number 1"},
		"null in a map":       {metricsHeader + "labels: {a: null}", "GPUMetricsConfig: labels[a]: must not be null"},
		"map key twice":       {strings.Replace(`{`+jsonHeader+`,"labels":{"a":"1","a":"2"}}`, "GPUConfig", "GPUMetricsConfig", 1), `GPUMetricsConfig: labels: duplicate key "a"`},
		"invalid value":       {gpuHeader + "claimOverride: Sometimes", `GPUConfig: claimOverride: unsupported value "Sometimes"; supported values: Allowed, Forbidden`},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Decode([]byte(test.raw))
			require.ErrorContains(t, err, test.want)
			assert.Nil(t, config)
			assert.NotContains(t, err.Error(), "\n")
			var problems *Problems
			require.ErrorAs(t, err, &problems)
			var problem *Problem
			require.ErrorAs(t, err, &problem)
			assert.Equal(t, problems.List[0], problem)
		})
	}
}

func TestDecodeNodeConfig_InvalidConfig_Refused(t *testing.T) {
	for name, test := range map[string]struct{ raw, want string }{
		"broken":        {"gpus: [", "reading the configuration"},
		"another kind":  {gpuHeader, `kind: unsupported value "GPUConfig"; supported values: NodeConfig`},
		"unknown field": {nodeHeader + "gpus: [{}, {modes: [whole], mod: 1}]", `NodeConfig: gpus[1]: unknown field "mod"; valid fields: select, modes, timeSlice`},
		"invalid":       {nodeHeader + "flags: {migStrategy: all}", `NodeConfig: flags.migStrategy: unsupported value "all"; supported values: none, single, mixed`},
		"number too big": {nodeHeader + "gpus: [{mig: {replicas: {1g.10gb: 99999999999}}}]",
			"gpus[0].mig.replicas[1g.10gb]: must be an integer, got number 99999999999"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := DecodeNodeConfig([]byte(test.raw))
			require.ErrorContains(t, err, test.want)
			assert.Nil(t, config)
		})
	}
}

func TestDecode_ValidConfig_Decoded(t *testing.T) {
	for name, raw := range map[string]string{
		"one document with marks": "# how\n---\n" + gpuHeader + "...\n",
		"directive":               "%YAML 1.1\n---\n" + gpuHeader,
		"JSON":                    "\n {" + jsonHeader + "}\n",
		"null is unset":           gpuHeader + "sharing: null\nclaimOverride:",
		"number as quantity":      gpuHeader + "sharing: {mps: {memoryLimit: 1073741824}}",
		"quantity with a part":    gpuHeader + "sharing: {mps: {memoryLimit: 1.5Gi}}",
		"alias":                   "apiVersion: gpu.prism.dev/v1alpha1\nkind: ProfilerConfig\nmatch: {regex: &r \"^python\", exclude: [*r]}",
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Decode([]byte(raw))
			require.NoError(t, err)
			require.NotNil(t, config)
		})
	}
}

func TestKind_NoHeader_Known(t *testing.T) {
	for want, config := range map[string]Config{
		KindGPUConfig:        &GPUConfig{},
		KindProfilerConfig:   &ProfilerConfig{},
		KindGPUMetricsConfig: &GPUMetricsConfig{},
	} {
		assert.Equal(t, want, config.Kind())
		require.NoError(t, config.Validate())
	}
	assert.Equal(t, KindNodeConfig, (&NodeConfig{}).Kind())
}

func TestProblem_NoPathOrKind_TextOnly(t *testing.T) {
	err := error(&Problems{List: []*Problem{{Text: "all is wrong"}, {Path: "a.b", Text: "is wrong"}}})
	require.EqualError(t, err, "all is wrong; a.b: is wrong")
	require.ErrorAs(t, err, new(*Problem))
}

// TestDecodeForeign_OtherFormat_ReadStrictly: foreign formats are read as strictly as ours, without a header.
func TestDecodeForeign_OtherFormat_ReadStrictly(t *testing.T) {
	type inner struct {
		Number *int32 `json:"number"`
		Free   any    `json:"free"`
		Hidden string `json:"-"`
	}
	type outer struct {
		Items []inner `json:"items"`
	}
	for name, test := range map[string]struct{ raw, want string }{
		"good":           {"items: [{number: 1, free: all}, {free: [1]}]", ""},
		"unknown key":    {"items: [{}, {num: 1}]", `other file: items[1]: unknown field "num"; valid fields: number, free`},
		"hidden key":     {`items: [{"-": x}]`, `other file: items[0]: unknown field "-"; valid fields: number, free`},
		"twice":          {`{"items": [], "items": []}`, `other file: duplicate field "items"`},
		"too big":        {"items: [{number: 3000000000}]", "other file: items[0].number: must be an integer, got number 3000000000"},
		"no object":      {"[]", "the configuration must be an object with apiVersion and kind, got an array"},
		"not even YAML":  {"items: [", "reading the configuration"},
		"longer than us": {"# " + strings.Repeat("x", MaxNodeConfigBytes), "the configuration must be at most 262144 bytes, got 262146"},
	} {
		t.Run(name, func(t *testing.T) {
			var into outer
			err := DecodeForeign([]byte(test.raw), "other file", &into)
			if test.want == "" {
				require.NoError(t, err)
				require.Equal(t, outer{Items: []inner{{Number: new(int32(1)), Free: "all"}, {Free: []any{1.0}}}}, into)
				return
			}
			require.ErrorContains(t, err, test.want)
			require.ErrorAs(t, err, new(*Problems))
		})
	}
}
