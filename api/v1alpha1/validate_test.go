package v1alpha1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type refusal struct{ raw, want string }

func testRefusals(t *testing.T, header string, tests map[string]refusal) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var err error
			if header == nodeHeader {
				_, err = DecodeNodeConfig([]byte(header + test.raw))
			} else {
				_, err = Decode([]byte(header + test.raw))
			}
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			_, text, _ := strings.Cut(err.Error(), ": ")
			require.Equal(t, test.want, text)
		})
	}
}

func TestGPUConfig(t *testing.T) {
	testRefusals(t, gpuHeader, map[string]refusal{
		"unknown strategy":         {"sharing: {strategy: mps}", `sharing.strategy: "mps" is not known; allowed: TimeSlicing, MPS`},
		"unknown interval":         {"sharing: {timeSlicing: {interval: Tiny}}", `sharing.timeSlicing.interval: "Tiny" is not known; allowed: Default, Short, Medium, Long`},
		"both settings":            {"sharing: {timeSlicing: {}, mps: {}}", "sharing: has both timeSlicing and mps; remove one of them, or set strategy and remove the other"},
		"time-slicing without use": {"sharing: {strategy: MPS, timeSlicing: {}}", "sharing.timeSlicing: has no effect with strategy MPS; remove it or set strategy to TimeSlicing"},
		"mps without use":          {"sharing: {strategy: TimeSlicing, mps: {}}", "sharing.mps: has no effect with strategy TimeSlicing; remove it or set strategy to MPS"},
		"mps with its strategy":    {"sharing: {strategy: MPS, mps: {}}", ""},
		"no percent":               {"sharing: {mps: {activeThreadPercentage: 0}}", ""},
		"too much percent":         {"sharing: {mps: {activeThreadPercentage: 101}}", "sharing.mps.activeThreadPercentage: 101 is out of range; allowed: 0 to 100"},
		"less than no percent":     {"sharing: {mps: {activeThreadPercentage: -1}}", "sharing.mps.activeThreadPercentage: -1 is out of range; allowed: 0 to 100"},
		"part of a Mi":             {"sharing: {mps: {memoryLimit: 1500Ki}}", "sharing.mps.memoryLimit: 1500Ki is not allowed; allowed: a whole number of Mi, at least 1Mi"},
		"no memory":                {"sharing: {mps: {memoryLimit: 0}}", "sharing.mps.memoryLimit: 0 is not allowed; allowed: a whole number of Mi, at least 1Mi"},
		"part of a byte":           {"sharing: {mps: {memoryLimit: 0.5}}", "sharing.mps.memoryLimit: 500m is not allowed; allowed: a whole number of Mi, at least 1Mi"},
		"more than there is":       {"sharing: {mps: {memoryLimit: 99999999E}}", "sharing.mps.memoryLimit: 99999999E is not allowed; allowed: a whole number of Mi, at least 1Mi"},
		"two problems": {"claimOverride: x\nsharing: {strategy: why}",
			`sharing.strategy: "why" is not known; allowed: TimeSlicing, MPS; claimOverride: "x" is not known; allowed: Allowed, Forbidden`},
	})
}

func TestProfilerConfigTool(t *testing.T) {
	const globs = "is not a glob of container names; allowed: lower-case letters, digits, -, *, ? and [a-z]"
	testRefusals(t, profilerHeader, map[string]refusal{
		"unknown tool":      {"tool: perf", `tool: "perf" is not known; allowed: NsightSystems, NsightCompute`},
		"path as version":   {"toolVersion: ../2025.5", `toolVersion: "../2025.5" is not a version; allowed: numbers with dots, for example 2025.5.1`},
		"version":           {"toolVersion: 2025.5.1.121", ""},
		"unknown injection": {"injection: LD_PRELOAD", `injection: "LD_PRELOAD" is not known; allowed: Preload, NRI, None`},
		"broken glob":       {`containers: ["[a"]`, `containers[0]: "[a" ` + globs},
		"path as glob":      {`containers: [a, "a/*"]`, `containers[1]: "a/*" ` + globs},
		"empty glob":        {`containers: [""]`, `containers[0]: "" ` + globs},
		"too many globs":    {"containers: [" + strings.Repeat("a,", 33) + "]", "containers: has 33 entries; allowed: at most 32"},
		"failure policy":    {"failurePolicy: Ignore", `failurePolicy: "Ignore" is not known; allowed: FailOpen, FailClosed`},
	})
}

func TestProfilerConfigMatch(t *testing.T) {
	const refers = " has a back-reference or a conditional group; write the alternatives out"
	testRefusals(t, profilerHeader, map[string]refusal{
		"dialect":            {"match: {dialect: PCRE}", `match.dialect: "PCRE" is not known; allowed: Perl, RE2`},
		"lookahead":          {"match: {regex: '^(?!.*bash).*python'}", ""},
		"lookahead in RE2":   {"match: {dialect: RE2, regex: '^(?!a)'}", "match.regex: \"^(?!a)\" does not compile as RE2: error parsing regexp: invalid or unsupported Perl syntax: `(?!`"},
		"RE2":                {"match: {dialect: RE2, regex: '^python[0-9.]*$'}", ""},
		"broken":             {"match: {regex: '(a'}", "match.regex: \"(a\" does not compile as Perl: error parsing regexp: missing closing ) in `(a`"},
		"back-reference":     {`match: {regex: '(a)\1'}`, `match.regex: "(a)\\1"` + refers},
		"named":              {`match: {regex: '(?<n>a)\k<n>'}`, `match.regex: "(?<n>a)\\k<n>"` + refers},
		"conditional":        {`match: {regex: '(a)?(?(1)b|c)'}`, `match.regex: "(a)?(?(1)b|c)"` + refers},
		"escaped backslash":  {`match: {regex: '\\1'}`, ""},
		"digit in class":     {`match: {regex: '[\1]'}`, ""},
		"bracket in class":   {`match: {regex: '[])]a[^]\1]'}`, ""},
		"after a class":      {`match: {regex: '([a])\1'}`, `match.regex: "([a])\\1"` + refers},
		"conditional, class": {`match: {regex: '[(?(]'}`, ""},
		"long":               {"match: {regex: " + strings.Repeat("a", 1025) + "}", "match.regex: has 1025 bytes; allowed: at most 1024"},
		"exclude":            {"match: {exclude: [a, '(']}", "match.exclude[1]: \"(\" does not compile as Perl: error parsing regexp: missing closing ) in `(`"},
		"exclude everything": {`match: {exclude: [""]}`, "match.exclude[0]: is empty and would exclude every process; remove it"},
		"many excludes":      {"match: {exclude: [" + strings.Repeat("a,", 17) + "]}", "match.exclude: has 17 entries; allowed: at most 16"},
		"target":             {"match: {target: Comm}", `match.target: "Comm" is not known; allowed: CommandLine, Executable, Argv0`},
		"no sessions":        {"match: {maxSessions: 0}", "match.maxSessions: 0 is out of range; allowed: 1 to 16"},
	})
}

func TestProfilerConfigRecording(t *testing.T) {
	const ranges = "is not allowed; allowed: 1 to 256 bytes of printable text"
	testRefusals(t, profilerHeader, map[string]refusal{
		"mode":               {"mode: Attach", `mode: "Attach" is not known; allowed: Profile, Launch`},
		"start":              {"start: Now", `start: "Now" is not known; allowed: Immediate, Manual, CUDAProfilerAPI, NVTX`},
		"range missing":      {"start: NVTX", "nvtxRange: is missing; start NVTX needs the range that begins the recording"},
		"range without use":  {"start: Manual\nnvtxRange: a", "nvtxRange: has no effect with start Manual; remove it or set start to NVTX"},
		"range, start later": {"nvtxRange: a", ""},
		"range of two lines": {"start: NVTX\nnvtxRange: \"a\\nb\"", `nvtxRange: "a\nb" ` + ranges},
		"empty range":        {"start: NVTX\nnvtxRange: \"\"", `nvtxRange: "" ` + ranges},
		"delay":              {"delay: 25h", "delay: 25h0m0s is out of range; allowed: 0s to 24h0m0s"},
		"negative delay":     {"delay: -1s", "delay: -1s is out of range; allowed: 0s to 24h0m0s"},
		"no duration":        {"duration: 0s", "duration: 0s is out of range; allowed: 1ms to 24h0m0s"},
		"end":                {"onDurationEnd: Kill", `onDurationEnd: "Kill" is not known; allowed: KeepRunning, Terminate`},
		"trace twice":        {"trace: [cuda, nvtx, cuda]", "trace[2]: cuda is given twice"},
		"trace both":         {"trace: [cuda, cuda-sw]", "trace: has both cuda and cuda-sw; remove one of them"},
		"no trace":           {"trace: []", ""},
		"graph":              {"cudaGraph: node", `cudaGraph: "node" is not known; allowed: Graph, Node`},
		"sampling":           {"cpuSampling: System", `cpuSampling: "System" is not known; allowed: None, ProcessTree`},
	})
	_, err := Decode([]byte(profilerHeader + "trace: [gpu]"))
	require.ErrorContains(t, err, `trace[0]: "gpu" is not known; allowed: cuda, cuda-sw, nvtx, osrt, `)
}

func TestProfilerConfigArgs(t *testing.T) {
	for _, arg := range []string{
		"--output=/x", "--outp=/x", "--o", "--session-new=a", "--session=a", "--sess=a", "--run-as=root", "--run=root",
		"--command-file=/x", "--after-fork=x", "--ftrace=a", "--ftrace-keep-user-config", "--gpu-metrics-devices=all",
		"--gpu-metrics-set=file:/x", "--gpu-m=all", "--env-var=LD_PRELOAD=/x", "--env=A=B",
	} {
		_, err := Decode([]byte(profilerHeader + "args: ['" + arg + "']"))
		name, _, _ := strings.Cut(arg, "=")
		require.ErrorContains(t, err, "args[0]: switch "+name+" is not allowed; denied: --output, --session*", arg)
	}
	for _, arg := range []string{
		"sleep", "-o", "-o=/x", "--", "", "-", "--Output=x", "--sample none", "--a\nb", "--a=" + strings.Repeat("x", 1024),
	} {
		_, err := Decode([]byte(profilerHeader + "args: [" + strings.ReplaceAll(quoteYAML(arg), "\n", `\n`) + "]"))
		require.ErrorContains(t, err, "is not allowed; allowed: --name or --name=value, at most 1024 bytes", arg)
	}
	for _, arg := range []string{"--stats=true", "--cuda-memory-usage=true", "--trace-fork-before-exec=true", "--nvtx-domain-include=a/b"} {
		_, err := Decode([]byte(profilerHeader + "args: ['" + arg + "']"))
		require.NoError(t, err)
	}
	_, err := Decode([]byte(profilerHeader + "args: [" + strings.Repeat("--stats=true,", 33) + "]"))
	require.ErrorContains(t, err, "args: has 33 entries; allowed: at most 32")
}

func quoteYAML(text string) string { return `"` + text + `"` }

func TestProfilerConfigOutput(t *testing.T) {
	const (
		absolute = "is not allowed; allowed: an absolute path without .., // or a slash at the end"
		fileName = "is not allowed; allowed: a file name without /, % and single braces that begins with neither . nor -"
		known    = "is not known; allowed: {PROCESS_NAME}, {PROCESS_ID}, {NAMESPACE}, {POD}, {CONTAINER}, {NODE}, {CLAIM}, " +
			"{GPU_UUID}, {RANK}, {TIMESTAMP}, {UID}"
	)
	path := func(value string) string { return "output: {type: ContainerPath, path: " + value + "}" }
	name := func(value string) string { return "output: {fileName: '" + value + "'}" }
	testRefusals(t, profilerHeader, map[string]refusal{
		"type":               {"output: {type: PVC}", `output.type: "PVC" is not known; allowed: Node, ContainerPath`},
		"path missing":       {"output: {type: ContainerPath}", "output.path: is missing; type ContainerPath needs a directory in the container"},
		"path without use":   {"output: {type: Node, path: /a}", "output.path: has no effect with type Node; remove it or set type to ContainerPath"},
		"path, type later":   {"output: {path: /a}", ""},
		"relative path":      {path("a/b"), `output.path: "a/b" ` + absolute},
		"climbing path":      {path("/a/../proc"), `output.path: "/a/../proc" ` + absolute},
		"root":               {path("/"), `output.path: "/" ` + absolute},
		"proc":               {path("/proc/1/root"), `output.path: "/proc/1/root" is below /proc; choose a directory of the container's own`},
		"dev":                {path("/dev"), `output.path: "/dev" is below /dev; choose a directory of the container's own`},
		"like dev":           {path("/devices"), ""},
		"unknown name":       {name("{POD}-{HOME}"), `output.fileName: placeholder "{HOME}" ` + known},
		"environment":        {name("%{HOME}"), `output.fileName: placeholder "%{HOME}" ` + known},
		"open brace":         {name("{POD"), `output.fileName: "{POD" ` + fileName},
		"directory":          {name("a/b"), `output.fileName: "a/b" ` + fileName},
		"hidden file":        {name(".{POD}"), `output.fileName: ".{POD}" ` + fileName},
		"like a switch":      {name("-{POD}"), `output.fileName: "-{POD}" ` + fileName},
		"tool's own":         {name("%q{HOME}"), `output.fileName: placeholder "{HOME}" ` + known + `; output.fileName: "%q{HOME}" ` + fileName},
		"long name":          {name(strings.Repeat("a", 201)), `output.fileName: "` + strings.Repeat("a", 80) + `…" (201 bytes) is not allowed; allowed: 1 to 200 bytes of printable text`},
		"no bytes":           {"output: {maxBytes: 0}", "output.maxBytes: 0 is too small; allowed: at least 1Mi"},
		"retention":          {"output: {retention: 1s}", "output.retention: 1s is out of range; allowed: 1m0s to 8760h0m0s"},
		"address for class":  {"output: {upload: {secretClass: 's3://x'}}", `output.upload.secretClass: "s3://x" is not a name; allowed: 1 to 63 lower-case letters, digits and -, neither first nor last a -`},
		"upload not decided": {"output: {upload: {}}", ""},
	})
}

func TestGPUMetricsConfig(t *testing.T) {
	testRefusals(t, metricsHeader, map[string]refusal{
		"source":                {"source: DCGM", `source: "DCGM" is not known; allowed: NVML, GPM, NsightSystems`},
		"set":                   {"sets: [All]", `sets[0]: "All" is not known; allowed: Basic, Utilization, Memory, Power, Clocks, PCIe, NVLink, ECC, Throttle, Processes, Pipelines`},
		"set twice":             {"sets: [Basic, Basic]", "sets[1]: Basic is given twice"},
		"pipelines, NVML":       {"source: NVML\nsets: [Basic, Pipelines]", "sets[1]: Pipelines needs source GPM, not NVML; change one of them"},
		"pipelines, GPM":        {"source: GPM\nsets: [Pipelines]", ""},
		"pipelines, later":      {"sets: [Pipelines]", ""},
		"short interval":        {"interval: 200ms", "interval: 200ms is out of range; allowed: 1s to 5m0s"},
		"short interval, GPM":   {"source: GPM\ninterval: 200ms", ""},
		"shorter interval, GPM": {"source: GPM\ninterval: 100ms", "interval: 100ms is out of range; allowed: 200ms to 5m0s"},
		"long interval":         {"interval: 6m", "interval: 6m0s is out of range; allowed: 1s to 5m0s"},
		"frequency":             {"source: NsightSystems\nfrequencyHz: 1", "frequencyHz: 1 is out of range; allowed: 10 to 200000"},
		"frequency, later":      {"frequencyHz: 10", ""},
		"frequency without use": {"source: GPM\nfrequencyHz: 10", "frequencyHz: has no effect with source GPM; remove it or set source to NsightSystems"},
		"set without use":       {"source: NVML\nmetricSet: ga100", "metricSet: has no effect with source NVML; remove it or set source to NsightSystems"},
		"report without use":    {"source: NVML\nnsysReport: true", "nsysReport: has no effect with source NVML; remove it or set source to NsightSystems"},
		"no report":             {"source: NVML\nnsysReport: false", ""},
		"file as set":           {"metricSet: 'file:/etc/x'", `metricSet: "file:/etc/x" is not an alias; allowed: 1 to 64 lower-case letters, digits, - and _, for example ga100`},
		"many labels":           {"labels: {a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: x, i: x}", "labels: has 9 entries; allowed: at most 8"},
		"label name":            {"labels: {__a: x}", `labels: "__a" is not a label name; allowed: 1 to 64 letters, digits and _, first a letter`},
		"label value":           {"labels: {a: ''}", `labels.a: "" is not allowed; allowed: 1 to 64 bytes of printable text`},
	})
}
