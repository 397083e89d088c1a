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

func TestDecodeRefuses(t *testing.T) {
	for name, test := range map[string]struct{ raw, want string }{
		"nothing":             {"", "the configuration is empty; needed: an object with apiVersion and kind"},
		"a comment only":      {"# nothing\n", "the configuration is empty; needed: an object with apiVersion and kind"},
		"a list":              {"[1]", "the configuration is a list; needed: an object with apiVersion and kind"},
		"a text":              {"hello", `the configuration is the text "hello"; needed: an object with apiVersion and kind`},
		"too long":            {gpuHeader + strings.Repeat("#", MaxConfigBytes), "the configuration has 10291 bytes; allowed: at most 10240"},
		"not UTF-8":           {"kind: \xff", "the configuration is not UTF-8 text"},
		"broken JSON":         {`{"kind":`, "reading the configuration: unexpected EOF"},
		"broken JSON value":   {`{"kind": nope}`, "reading the configuration: invalid character 'o' in literal null (expecting 'u')"},
		"broken JSON key":     {`{1: 2}`, "reading the configuration: invalid character '1'"},
		"broken JSON list":    {`{"a": [1 2]}`, "reading the configuration: invalid character '2' after array element"},
		"more JSON":           {`{} {}`, "reading the configuration: text after the end of the object at byte 4"},
		"broken YAML":         {"kind: [", "reading the configuration: yaml: line 1: did not find expected node content"},
		"YAML key twice":      {"kind: a\nkind: b", `reading the configuration: line 2: key "kind" is given twice`},
		"two documents":       {gpuHeader + "---\n" + gpuHeader, "reading the configuration: 2 YAML documents; allowed: one"},
		"no header":           {"sharing: {}", "apiVersion: is missing or not a text; allowed: gpu.prism.dev/v1alpha1; kind: is missing or not a text; allowed: GPUConfig, GPUMetricsConfig, ProfilerConfig"},
		"header of a type":    {"apiVersion: 1\nkind: {}", "apiVersion: is missing or not a text; allowed: gpu.prism.dev/v1alpha1; kind: is missing"},
		"wrong group":         {"apiVersion: resource.nvidia.com/v1beta1\nkind: GpuConfig", `apiVersion: "resource.nvidia.com/v1beta1" is not known; allowed: gpu.prism.dev/v1alpha1; kind: "GpuConfig" is not known; allowed: GPUConfig`},
		"node configuration":  {nodeHeader, `kind: "NodeConfig" is not known; allowed: GPUConfig, GPUMetricsConfig, ProfilerConfig`},
		"JSON kind twice":     {`{` + jsonHeader + `,"kind":"GPUConfig"}`, "GPUConfig: kind: is given twice"},
		"JSON key twice":      {`{` + jsonHeader + `,"sharing":{"strategy":"MPS","strategy":"MPS"}}`, "GPUConfig: sharing.strategy: is given twice"},
		"unknown field":       {gpuHeader + "sharing: {strategie: MPS}", "GPUConfig: sharing.strategie: is not a field; allowed here: strategy, timeSlicing, mps"},
		"field in other case": {gpuHeader + "EnforceMemory: true", "GPUConfig: EnforceMemory: is not a field; allowed here: kind, apiVersion, sharing, enforceMemory, claimOverride"},
		"unprintable field":   {`{` + jsonHeader + `,"a\nb":1,"":2}`, `GPUConfig: "a\nb": is not a field; allowed here: kind, apiVersion, sharing, enforceMemory, claimOverride; "": is not`},
		"text for object":     {gpuHeader + "sharing: MPS", `GPUConfig: sharing: is the text "MPS"; needed: an object`},
		"object for text":     {gpuHeader + "claimOverride: {a: [1, {b: c}]}", "GPUConfig: claimOverride: is an object; needed: a text"},
		"text for bool":       {gpuHeader + `enforceMemory: "true"`, `GPUConfig: enforceMemory: is the text "true"; needed: true or false`},
		"text for number":     {gpuHeader + `sharing: {mps: {activeThreadPercentage: "50"}}`, `sharing.mps.activeThreadPercentage: is the text "50"; needed: a whole number`},
		"part of a number":    {gpuHeader + `sharing: {mps: {activeThreadPercentage: 12.5}}`, "sharing.mps.activeThreadPercentage: is 12.5; needed: a whole number"},
		"quantity":            {gpuHeader + `sharing: {mps: {memoryLimit: lots}}`, `sharing.mps.memoryLimit: is the text "lots"; needed: a quantity, for example "8Gi"`},
		"quantity of a type":  {gpuHeader + `sharing: {mps: {memoryLimit: [1]}}`, `sharing.mps.memoryLimit: is a list; needed: a quantity, for example "8Gi"`},
		"endless quantity":    {gpuHeader + `sharing: {mps: {memoryLimit: "1e-2147483647"}}`, `sharing.mps.memoryLimit: is the text "1e-2147483647"; needed: a quantity`},
		"duration":            {profilerHeader + "delay: soon", `ProfilerConfig: delay: is the text "soon"; needed: a duration, for example "90s"`},
		"duration of a type":  {profilerHeader + "delay: {a: 1}", `ProfilerConfig: delay: is an object; needed: a duration, for example "90s"`},
		"number for duration": {profilerHeader + "delay: 30", `ProfilerConfig: delay: is 30; needed: a duration, for example "90s"`},
		"text for list":       {profilerHeader + "trace: cuda", `ProfilerConfig: trace: is the text "cuda"; needed: a list`},
		"null in a list":      {profilerHeader + "trace: [null]", "ProfilerConfig: trace[0]: is null; needed: a value"},
		"number in a list":    {profilerHeader + "trace: [1]", "ProfilerConfig: trace[0]: is 1; needed: a text"},
		"list for map":        {metricsHeader + "labels: [a]", "GPUMetricsConfig: labels: is a list; needed: an object"},
		"number in a map":     {metricsHeader + "labels: {a: 1}", "GPUMetricsConfig: labels[a]: is 1; needed: a text"},
		"null in a map":       {metricsHeader + "labels: {a: null}", "GPUMetricsConfig: labels[a]: is null; needed: a value"},
		"map key twice":       {strings.Replace(`{`+jsonHeader+`,"labels":{"a":"1","a":"2"}}`, "GPUConfig", "GPUMetricsConfig", 1), "GPUMetricsConfig: labels[a]: is given twice"},
		"invalid value":       {gpuHeader + "claimOverride: Sometimes", `GPUConfig: claimOverride: "Sometimes" is not known; allowed: Allowed, Forbidden`},
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

func TestDecodeNodeConfigRefuses(t *testing.T) {
	for name, test := range map[string]struct{ raw, want string }{
		"broken":        {"gpus: [", "reading the configuration"},
		"another kind":  {gpuHeader, `kind: "GPUConfig" is not known; allowed: NodeConfig`},
		"unknown field": {nodeHeader + "gpus: [{}, {modes: [whole], mod: 1}]", "NodeConfig: gpus[1].mod: is not a field; allowed here: select, modes, timeSlice"},
		"invalid":       {nodeHeader + "flags: {migStrategy: all}", `NodeConfig: flags.migStrategy: "all" is not known; allowed: none, single, mixed`},
		"number too big": {nodeHeader + "gpus: [{mig: {replicas: {1g.10gb: 99999999999}}}]",
			"gpus[0].mig.replicas[1g.10gb]: is 99999999999; needed: a whole number"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := DecodeNodeConfig([]byte(test.raw))
			require.ErrorContains(t, err, test.want)
			assert.Nil(t, config)
		})
	}
}

func TestDecodeAccepts(t *testing.T) {
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

func TestKindIsKnownWithoutHeader(t *testing.T) {
	for want, config := range map[string]Config{
		KindGPUConfig:        &GPUConfig{},
		KindProfilerConfig:   &ProfilerConfig{},
		KindGPUMetricsConfig: &GPUMetricsConfig{},
	} {
		assert.Equal(t, want, config.Kind())
		require.NoError(t, config.Validate())
		config.opaque()
	}
	assert.Equal(t, KindNodeConfig, (&NodeConfig{}).Kind())
}

func TestProblemWithoutPathOrKind(t *testing.T) {
	err := error(&Problems{List: []*Problem{{Text: "all is wrong"}, {Path: "a.b", Text: "is wrong"}}})
	require.EqualError(t, err, "all is wrong; a.b: is wrong")
	require.ErrorAs(t, err, new(*Problem))
}

// A format of others is read as strictly as ours, without a header.
func TestDecodeForeign(t *testing.T) {
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
		"unknown key":    {"items: [{}, {num: 1}]", "other file: items[1].num: is not a field; allowed here: number, free"},
		"hidden key":     {`items: [{"-": x}]`, "other file: items[0].-: is not a field; allowed here: number, free"},
		"twice":          {`{"items": [], "items": []}`, "other file: items: is given twice"},
		"too big":        {"items: [{number: 3000000000}]", "other file: items[0].number: is 3000000000; needed: a whole number"},
		"no object":      {"[]", "the configuration is a list; needed: an object with apiVersion and kind"},
		"not even YAML":  {"items: [", "reading the configuration"},
		"longer than us": {"# " + strings.Repeat("x", MaxNodeConfigBytes), "the configuration has 262146 bytes; allowed: at most 262144"},
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
