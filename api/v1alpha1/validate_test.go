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

func TestGPUConfig_InvalidValues_Refused(t *testing.T) {
	testRefusals(t, gpuHeader, map[string]refusal{
		"unknown strategy":         {"sharing: {strategy: mps}", `sharing.strategy: unsupported value "mps"; supported values: TimeSlicing, MPS`},
		"unknown interval":         {"sharing: {timeSlicing: {interval: Tiny}}", `sharing.timeSlicing.interval: unsupported value "Tiny"; supported values: Default, Short, Medium, Long`},
		"both settings":            {"sharing: {timeSlicing: {}, mps: {}}", "sharing: timeSlicing and mps are mutually exclusive; remove one of them"},
		"time-slicing without use": {"sharing: {strategy: MPS, timeSlicing: {}}", "sharing.timeSlicing: has no effect with strategy MPS; remove it or set strategy to TimeSlicing"},
		"mps without use":          {"sharing: {strategy: TimeSlicing, mps: {}}", "sharing.mps: has no effect with strategy TimeSlicing; remove it or set strategy to MPS"},
		"mps with its strategy":    {"sharing: {strategy: MPS, mps: {}}", ""},
		"no percent":               {"sharing: {mps: {activeThreadPercentage: 0}}", ""},
		"too much percent":         {"sharing: {mps: {activeThreadPercentage: 101}}", "sharing.mps.activeThreadPercentage: must be between 0 and 100, got 101"},
		"less than no percent":     {"sharing: {mps: {activeThreadPercentage: -1}}", "sharing.mps.activeThreadPercentage: must be between 0 and 100, got -1"},
		"part of a Mi":             {"sharing: {mps: {memoryLimit: 1500Ki}}", "sharing.mps.memoryLimit: must be a multiple of 1Mi and at least 1Mi, got 1500Ki"},
		"no memory":                {"sharing: {mps: {memoryLimit: 0}}", "sharing.mps.memoryLimit: must be a multiple of 1Mi and at least 1Mi, got 0"},
		"part of a byte":           {"sharing: {mps: {memoryLimit: 0.5}}", "sharing.mps.memoryLimit: must be a multiple of 1Mi and at least 1Mi, got 500m"},
		"more than there is":       {"sharing: {mps: {memoryLimit: 99999999E}}", "sharing.mps.memoryLimit: must be a multiple of 1Mi and at least 1Mi, got 99999999E"},
		"two problems": {"claimOverride: x\nsharing: {strategy: why}",
			`sharing.strategy: unsupported value "why"; supported values: TimeSlicing, MPS; claimOverride: unsupported value "x"; supported values: Allowed, Forbidden`},
	})
}

func TestProfilerConfig_Tool_Validated(t *testing.T) {
	const globs = "must be a glob of container names with lower-case letters, digits, -, *, ? and [a-z], got "
	testRefusals(t, profilerHeader, map[string]refusal{
		"unknown tool":            {"tool: perf", `tool: unsupported value "perf"; supported values: NsightSystems, NsightCompute`},
		"path as version":         {"toolVersion: ../2025.5", `toolVersion: must be numbers with dots, for example 2025.5.1, got "../2025.5"`},
		"version":                 {"toolVersion: 2025.5.1.121", ""},
		"nothing injected":        {"injection: None\nstart: Manual\nduration: 1m\noutput: {type: Node, fileName: a}\nmatch: {regex: a}", ""},
		"NVTX, nothing injected":  {"injection: None\nstart: NVTX\nnvtxRange: a", "start: must be Immediate or Manual with injection None, got NVTX"},
		"CUDA, nothing injected":  {"injection: None\nstart: CUDAProfilerAPI", "start: must be Immediate or Manual with injection None, got CUDAProfilerAPI"},
		"delay, nothing injected": {"injection: None\ndelay: 1s", "delay: has no effect with injection None; remove it"},
		"path, nothing injected":  {"injection: None\noutput: {type: ContainerPath, path: /a}", "output.type: must be Node with injection None, got ContainerPath"},
		"unknown injection":       {"injection: LD_PRELOAD", `injection: unsupported value "LD_PRELOAD"; supported values: Preload, NRI, None`},
		"broken glob":             {`containers: ["[a"]`, `containers[0]: ` + globs + `"[a"`},
		"path as glob":            {`containers: [a, "a/*"]`, `containers[1]: ` + globs + `"a/*"`},
		"empty glob":              {`containers: [""]`, `containers[0]: ` + globs + `""`},
		"too many globs":          {"containers: [" + strings.Repeat("a,", 33) + "]", "containers: must have at most 32 items, got 33"},
		"failure policy":          {"failurePolicy: Ignore", `failurePolicy: unsupported value "Ignore"; supported values: FailOpen, FailClosed`},
	})
}

func TestProfilerConfig_Match_Validated(t *testing.T) {
	const refers = `: a back-reference is not supported; write out the alternatives, and a character by its number as \x{41}`
	testRefusals(t, profilerHeader, map[string]refusal{
		"dialect":            {"match: {dialect: PCRE}", `match.dialect: unsupported value "PCRE"; supported values: Perl, RE2`},
		"lookahead":          {"match: {regex: '^(?!.*bash).*python'}", ""},
		"lookahead in RE2":   {"match: {dialect: RE2, regex: '^(?!a)'}", "match.regex: \"^(?!a)\" is not a valid RE2 regular expression: error parsing regexp: invalid or unsupported Perl syntax: `(?!`"},
		"RE2":                {"match: {dialect: RE2, regex: '^python[0-9.]*$'}", ""},
		"broken":             {"match: {regex: '(a'}", "match.regex: \"(a\" is not a valid Perl regular expression: error parsing regexp: missing closing ) in `(a`"},
		"back-reference":     {`match: {regex: '(a)\1'}`, `match.regex: "(a)\\1"` + refers},
		"named":              {`match: {regex: '(?<n>a)\k<n>'}`, `match.regex: "(?<n>a)\\k<n>"` + refers},
		"conditional":        {`match: {regex: '(a)?(?(1)b|c)'}`, `match.regex: "(a)?(?(1)b|c)": a conditional on a group, (?(1)…|…), is not supported; write out both alternatives, as in (?:…|…)`},
		"escaped backslash":  {`match: {regex: '\\1'}`, ""},
		"digit in class":     {`match: {regex: '[\1]'}`, ""},
		"bracket in class":   {`match: {regex: '[])]a[^]\1]'}`, ""},
		"after a class":      {`match: {regex: '([a])\1'}`, `match.regex: "([a])\\1"` + refers},
		"conditional, class": {`match: {regex: '[(?(]'}`, ""},
		"lookahead as such":  {`match: {regex: '(?(?=a)ab|.c)'}`, ""},
		"POSIX class":        {`match: {regex: '[[:alpha:]]'}`, `match.regex: "[[:alpha:]]": a POSIX class, [[:alpha:]], is not supported; write a class such as [A-Za-z], \p{L}, \w, \d or \s`},
		"POSIX class of RE2": {`match: {dialect: RE2, regex: '[[:alpha:]]'}`, ""},
		"long":               {"match: {regex: " + strings.Repeat("a", 1025) + "}", "match.regex: must be at most 1024 bytes, got 1025"},
		"exclude":            {"match: {exclude: [a, '(']}", "match.exclude[1]: \"(\" is not a valid Perl regular expression: error parsing regexp: missing closing ) in `(`"},
		"exclude everything": {`match: {exclude: [""]}`, "match.exclude[0]: must not be empty, since an empty pattern excludes every process"},
		"many excludes":      {"match: {exclude: [" + strings.Repeat("a,", 17) + "]}", "match.exclude: must have at most 16 items, got 17"},
		"target":             {"match: {target: Comm}", `match.target: unsupported value "Comm"; supported values: CommandLine, Executable, Argv0`},
		"no sessions":        {"match: {maxSessions: 0}", "match.maxSessions: must be between 1 and 16, got 0"},
	})
}

func TestProfilerConfig_Recording_Validated(t *testing.T) {
	const ranges = "must be 1 to 256 bytes of printable text, got "
	testRefusals(t, profilerHeader, map[string]refusal{
		"mode":               {"mode: Attach", `mode: unsupported value "Attach"; supported values: Profile, Launch`},
		"start":              {"start: Now", `start: unsupported value "Now"; supported values: Immediate, Manual, CUDAProfilerAPI, NVTX`},
		"range missing":      {"start: NVTX", "nvtxRange: required with start NVTX: the range that starts the recording"},
		"range without use":  {"start: Manual\nnvtxRange: a", "nvtxRange: has no effect with start Manual; remove it or set start to NVTX"},
		"range, start later": {"nvtxRange: a", ""},
		"range of two lines": {"start: NVTX\nnvtxRange: \"a\\nb\"", `nvtxRange: ` + ranges + `"a\nb"`},
		"empty range":        {"start: NVTX\nnvtxRange: \"\"", "nvtxRange: required with start NVTX: the range that starts the recording"},
		"ranges":             {"captureRange: All", `captureRange: unsupported value "All"; supported values: First, Repeat`},
		"ranges, at once":    {"start: Immediate\ncaptureRange: Repeat", "captureRange: Repeat has no effect with start Immediate; remove it or set start to NVTX or CUDAProfilerAPI"},
		"ranges, by hand":    {"start: Manual\ncaptureRange: Repeat", "captureRange: Repeat has no effect with start Manual; remove it or set start to NVTX or CUDAProfilerAPI"},
		"most, by hand":      {"start: Manual\nmaxRanges: 2", "maxRanges: has no effect with start Manual: commands start each recording; remove it"},
		"delay, by hand":     {"start: Manual\ndelay: 1s", "delay: has no effect with start Manual: commands start each recording; remove it"},
		"by hand":            {"start: Manual\ndelay: 0s\nnvtxRange: ''\nduration: 1m\ncaptureRange: First\narm: OnDemand", ""},
		"launch":             {"mode: Launch\nduration: 1m", ""},
		"launch, by hand":    {"mode: Launch\nstart: Manual", ""},
		"launch, as default": {"mode: Launch\nstart: Immediate", ""},
		"launch, delay":      {"mode: Launch\ndelay: 1s", "delay: has no effect with start Manual: commands start each recording; remove it"},
		"launch, range":      {"mode: Launch\nnvtxRange: a", "nvtxRange: has no effect with start Manual; remove it or set start to NVTX"},
		"launch, ranges":     {"mode: Launch\ncaptureRange: Repeat", "captureRange: Repeat has no effect with start Manual; remove it or set start to NVTX or CUDAProfilerAPI"},
		"launch and NVTX":    {"mode: Launch\nstart: NVTX\nnvtxRange: a", "mode: Launch is the same as start Manual, but start is NVTX; remove one of them"},
		"launch and CUDA":    {"mode: Launch\nstart: CUDAProfilerAPI", "mode: Launch is the same as start Manual, but start is CUDAProfilerAPI; remove one of them"},
		"arm":                {"arm: Never", `arm: unsupported value "Never"; supported values: Always, OnDemand`},
		"ranges, later":      {"captureRange: Repeat\nmaxRanges: 1", ""},
		"ranges of NVTX":     {"start: NVTX\nnvtxRange: a\ncaptureRange: Repeat\nmaxRanges: 16", ""},
		"ranges of CUDA":     {"start: CUDAProfilerAPI\ncaptureRange: Repeat", ""},
		"ranges and time":    {"captureRange: Repeat\nduration: 1s", "duration: must not be set with captureRange Repeat, which records each range to its end; remove it"},
		"first range":        {"start: Immediate\ncaptureRange: First", ""},
		"too many ranges":    {"maxRanges: 17", "maxRanges: must be between 1 and 16, got 17"},
		"no ranges":          {"maxRanges: 0", "maxRanges: must be between 1 and 16, got 0"},
		"most of one range":  {"captureRange: First\nmaxRanges: 2", "maxRanges: has no effect with captureRange First; remove it or set captureRange to Repeat"},
		"delay":              {"delay: 25h", "delay: must be between 0s and 24h0m0s, got 25h0m0s"},
		"negative delay":     {"delay: -1s", "delay: must be between 0s and 24h0m0s, got -1s"},
		"no duration":        {"duration: 0s", "duration: must be between 1ms and 24h0m0s, got 0s"},
		"trace twice":        {"trace: [cuda, nvtx, cuda]", `trace[2]: duplicate value "cuda"`},
		"trace both":         {"trace: [cuda, cuda-sw]", "trace: cuda and cuda-sw are mutually exclusive; remove one of them"},
		"no trace":           {"trace: []", ""},
		"graph":              {"cudaGraph: node", `cudaGraph: unsupported value "node"; supported values: Graph, Node`},
		"backtrace":          {"backtrace: lbr", `backtrace: unsupported value "lbr"; supported values: None, LBR, FramePointer, DWARF`},
		"backtrace without":  {"cpuSampling: None\nbacktrace: LBR", "backtrace: has no effect with cpuSampling None; remove it or set cpuSampling to ProcessTree"},
		"frequency":          {"samplingFrequencyHz: 9000", "samplingFrequencyHz: must be between 100 and 8000, got 9000"},
		"frequency without":  {"cpuSampling: None\nsamplingFrequencyHz: 100", "samplingFrequencyHz: has no effect with cpuSampling None; remove it or set cpuSampling to ProcessTree"},
		"override":           {"claimOverride: Never", `claimOverride: unsupported value "Never"; supported values: Allowed, Forbidden`},
		"sampling":           {"cpuSampling: System", `cpuSampling: unsupported value "System"; supported values: None, ProcessTree`},
	})
	_, err := Decode([]byte(profilerHeader + "trace: [gpu]"))
	require.ErrorContains(t, err, `trace[0]: unsupported value "gpu"; supported values: cuda, cuda-sw, nvtx, osrt, `)
}

func TestProfilerConfig_Args_Validated(t *testing.T) {
	for _, arg := range []string{
		"--output=/x", "--outp=/x", "--o", "--session-new=a", "--session=a", "--sess=a", "--run-as=root", "--run=root",
		"--command-file=/x", "--after-fork=x", "--ftrace=a", "--ftrace-keep-user-config", "--gpu-metrics-devices=all",
		"--gpu-metrics-set=file:/x", "--gpu-m=all", "--env-var=LD_PRELOAD=/x", "--env=A=B",
		"--show-output=false", "--show=false", "--kill=sigterm", "--wait=all", "--trace=cuda", "--sample=system-wide", "--cpuctxsw=none",
		"--capture-range-end=repeat", "--duration-frames=3", "--stats=true", "--export=sqlite", "--start-later=true", "--discard-environment=false",
	} {
		_, err := Decode([]byte(profilerHeader + "args: ['" + arg + "']"))
		name, _, _ := strings.Cut(arg, "=")
		require.ErrorContains(t, err, "args[0]: switch "+name+" is forbidden, also abbreviated; forbidden switches: --output, --session*", arg)
	}
	for _, arg := range []string{
		"sleep", "-o", "-o=/x", "--", "", "-", "--Output=x", "--sample none", "--a\nb", "--a=" + strings.Repeat("x", 1024),
	} {
		_, err := Decode([]byte(profilerHeader + "args: [" + strings.ReplaceAll(quoteYAML(arg), "\n", `\n`) + "]"))
		require.ErrorContains(t, err, "must be --name or --name=value of at most 1024 bytes, got ", arg)
	}
	for _, arg := range []string{"--cuda-flush-interval=100", "--cuda-memory-usage=true", "--samples-per-backtrace=4", "--trace-fork-before-exec=true", "--nvtx-domain-include=a/b"} {
		_, err := Decode([]byte(profilerHeader + "args: ['" + arg + "']"))
		require.NoError(t, err)
	}
	_, err := Decode([]byte(profilerHeader + "args: [" + strings.Repeat("--stats=true,", 33) + "]"))
	require.ErrorContains(t, err, "args: must have at most 32 items, got 33")
}

func quoteYAML(text string) string { return `"` + text + `"` }

func TestProfilerConfig_Output_Validated(t *testing.T) {
	const (
		absolute = "must be an absolute path without .. and not /, got "
		fileName = "must be a file name without /, % and single braces that starts with neither . nor -, got "
		known    = "; supported placeholders: {PROCESS_NAME}, {PROCESS_ID}, {NAMESPACE}, {POD}, {CONTAINER}, {NODE}, {CLAIM}, " +
			"{GPU_UUID}, {RANK}, {TIMESTAMP}, {UID}, and %{NAME} for an environment variable"
	)
	path := func(value string) string { return "output: {type: ContainerPath, path: " + value + "}" }
	name := func(value string) string { return "output: {fileName: '" + value + "'}" }
	testRefusals(t, profilerHeader, map[string]refusal{
		"type":                {"output: {type: PVC}", `output.type: unsupported value "PVC"; supported values: Node, ContainerPath`},
		"path missing":        {"output: {type: ContainerPath}", "output.path: required with type ContainerPath: a directory in the container"},
		"path without use":    {"output: {type: Node, path: /a}", "output.path: has no effect with type Node; remove it or set type to ContainerPath"},
		"path, type later":    {"output: {path: /a}", ""},
		"relative path":       {path("a/b"), `output.path: ` + absolute + `"a/b"`},
		"climbing path":       {path("/a/../proc"), `output.path: ` + absolute + `"/a/../proc"`},
		"root":                {path("/"), `output.path: ` + absolute + `"/"`},
		"slashes":             {path("/a//b/"), ""},
		"root, slashes":       {path("///"), `output.path: ` + absolute + `"///"`},
		"proc, slashes":       {path("//proc//1/"), `output.path: must not be below /proc, got "/proc/1"; choose another directory of the container`},
		"proc":                {path("/proc/1/root"), `output.path: must not be below /proc, got "/proc/1/root"; choose another directory of the container`},
		"dev":                 {path("/dev"), `output.path: must not be below /dev, got "/dev"; choose another directory of the container`},
		"like dev":            {path("/devices"), ""},
		"unknown name":        {name("{POD}-{HOME}"), `output.fileName: unsupported placeholder "{HOME}"` + known},
		"environment":         {name("%{HOME}_%{POD_FULLNAME}"), ""},
		"broken variable":     {name("%{A-B}"), `output.fileName: "%{A-B}" must name an environment variable in at most 64 letters, digits and _`},
		"empty path":          {"output: {path: ''}", ""},
		"placeholder in path": {path("'/a/{POD}/%{NAMESPACE}'"), ""},
		"unknown in path":     {path("'/a/{HOME}'"), `output.path: unsupported placeholder "{HOME}"` + known},
		"brace in path":       {path("'/a/{POD'"), `output.path: must not contain % or single braces, got "/a/{POD"`},
		"open brace":          {name("{POD"), `output.fileName: ` + fileName + `"{POD"`},
		"directory":           {name("a/b"), `output.fileName: ` + fileName + `"a/b"`},
		"hidden file":         {name(".{POD}"), `output.fileName: ` + fileName + `".{POD}"`},
		"like a switch":       {name("-{POD}"), `output.fileName: ` + fileName + `"-{POD}"`},
		"tool's own":          {name("%q{HOME}"), `output.fileName: unsupported placeholder "{HOME}"` + known + `; output.fileName: ` + fileName + `"%q{HOME}"`},
		"long name":           {name(strings.Repeat("a", 201)), `output.fileName: must be 1 to 200 bytes of printable text, got "` + strings.Repeat("a", 80) + `…" (201 bytes)`},
		"no bytes":            {"output: {maxBytes: 0}", "output.maxBytes: must be greater than or equal to 1Mi, got 0"},
		"retention":           {"output: {retention: 1s}", "output.retention: must be between 1m0s and 8760h0m0s, got 1s"},
		"address for class":   {"output: {upload: {secretClass: 's3://x'}}", `output.upload.secretClass: must be 1 to 63 lower-case letters, digits and - and start and end with a letter or digit, got "s3://x"`},
		"upload not decided":  {"output: {upload: {}}", ""},
	})
}

func TestGPUMetricsConfig_InvalidValues_Refused(t *testing.T) {
	testRefusals(t, metricsHeader, map[string]refusal{
		"source":                {"source: DCGM", `source: unsupported value "DCGM"; supported values: NVML, GPM, NsightSystems`},
		"set":                   {"sets: [All]", `sets[0]: unsupported value "All"; supported values: Basic, Utilization, Memory, Power, Clocks, PCIe, NVLink, ECC, Throttle, Processes, Pipelines`},
		"set twice":             {"sets: [Basic, Basic]", `sets[1]: duplicate value "Basic"`},
		"pipelines, NVML":       {"source: NVML\nsets: [Basic, Pipelines]", "sets[1]: Pipelines requires source GPM, got source NVML; change one of them"},
		"pipelines, GPM":        {"source: GPM\nsets: [Pipelines]", ""},
		"pipelines, later":      {"sets: [Pipelines]", ""},
		"short interval":        {"interval: 200ms", "interval: must be between 1s and 5m0s, got 200ms"},
		"short interval, GPM":   {"source: GPM\ninterval: 200ms", ""},
		"shorter interval, GPM": {"source: GPM\ninterval: 100ms", "interval: must be between 200ms and 5m0s, got 100ms"},
		"long interval":         {"interval: 6m", "interval: must be between 1s and 5m0s, got 6m0s"},
		"frequency":             {"source: NsightSystems\nfrequencyHz: 1", "frequencyHz: must be between 10 and 200000, got 1"},
		"frequency, later":      {"frequencyHz: 10", ""},
		"frequency without use": {"source: GPM\nfrequencyHz: 10", "frequencyHz: has no effect with source GPM; remove it or set source to NsightSystems"},
		"set without use":       {"source: NVML\nmetricSet: ga100", "metricSet: has no effect with source NVML; remove it or set source to NsightSystems"},
		"file as set":           {"metricSet: 'file:/etc/x'", `metricSet: must be 1 to 64 lower-case letters, digits, - and _, for example ga100, got "file:/etc/x"`},
		"many labels":           {"labels: {a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: x, i: x}", "labels: must have at most 8 items, got 9"},
		"label name":            {"labels: {__a: x}", `labels: a label name must be 1 to 64 letters, digits and _ and start with a letter, got "__a"`},
		"label value":           {"labels: {a: ''}", `labels.a: must be 1 to 64 bytes of printable text, got ""`},
	})
}
