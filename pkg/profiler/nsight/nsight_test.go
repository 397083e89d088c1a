package nsight

import (
	"embed"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// versions are the tools whose switches are in testdata, copied from their `nsys profile --help`, `nsys launch --help` and `nsys start
// --help`.
var versions = []string{"2022.4.2", "2023.4.4"}

//go:embed testdata
var testdata embed.FS

// installed returns a tool of testdata, with further switches of nsys profile.
func installed(t *testing.T, version string, more ...string) Tool {
	t.Helper()
	switches := func(command string) []string {
		raw, err := testdata.ReadFile("testdata/" + version + command + ".txt")
		require.NoError(t, err)
		return strings.Fields(string(raw))
	}
	return Tool{Version: version, Switches: append(switches(""), more...), Launch: switches(".launch"), Start: switches(".start")}
}

// profile returns the switches of nsys profile.
func profile(c *v1alpha1.ProfilerConfig, tool Tool, software bool) ([]string, error) {
	commands, err := Arguments(c, tool, software)
	return commands.Run, err
}

// effective returns a ProfilerConfig with these fields and every default.
func effective(t *testing.T, fields string) *v1alpha1.ProfilerConfig {
	t.Helper()
	config, err := v1alpha1.Decode([]byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: ProfilerConfig\n" + fields))
	require.NoError(t, err)
	config.Default()
	require.NoError(t, config.Validate())
	return config.(*v1alpha1.ProfilerConfig)
}

// TestArguments_RealVersions_Switches: the arguments for both versions; want is between --kill=none --wait=primary and the rest.
func TestArguments_RealVersions_Switches(t *testing.T) {
	t.Parallel()
	const none = "--sample=none --cpuctxsw=none"
	for name, c := range map[string]struct {
		fields, want string
		software     bool
	}{
		"defaults":           {"", "--trace=cuda,nvtx " + none, false},
		"MIG, older tool":    {"", "--trace=cuda,nvtx " + none, true},
		"software asked":     {"trace: [cuda-sw]", "--trace=cuda " + none, false},
		"nothing traced":     {"trace: []", "--trace=none " + none, false},
		"graph nodes":        {"cudaGraph: Node", "--trace=cuda,nvtx --cuda-graph-trace=node " + none, false},
		"graph without cuda": {"cudaGraph: Node\ntrace: [osrt]", "--trace=osrt " + none, false},
		"NVTX range": {"start: NVTX\nnvtxRange: step@training\ntrace: [osrt]",
			"--trace=osrt,nvtx --capture-range=nvtx --nvtx-capture=step@training --env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0 --capture-range-end=stop " + none, false},
		"CUDA profiler API": {"start: CUDAProfilerAPI\ntrace: [osrt]", "--trace=osrt,cuda --capture-range=cudaProfilerApi --capture-range-end=stop " + none, false},
		"NVTX ranges": {"start: NVTX\nnvtxRange: step@training\ncaptureRange: Repeat\nmaxRanges: 3\ntrace: [osrt]",
			"--trace=osrt,nvtx --capture-range=nvtx --nvtx-capture=step@training --env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0 --capture-range-end=repeat:3 " + none, false},
		"CUDA ranges":         {"start: CUDAProfilerAPI\ncaptureRange: Repeat\ntrace: [osrt]", "--trace=osrt,cuda --capture-range=cudaProfilerApi --capture-range-end=repeat:16 " + none, false},
		"delay, duration":     {"delay: 1500ms\nduration: 1m", "--trace=cuda,nvtx --delay=2 --duration=60 " + none, false},
		"short duration":      {"duration: 1ms", "--trace=cuda,nvtx --duration=1 " + none, false},
		"CPU samples":         {"cpuSampling: ProcessTree", "--trace=cuda,nvtx --sample=process-tree --cpuctxsw=process-tree", false},
		"how they are taken":  {"cpuSampling: ProcessTree\nbacktrace: FramePointer\nsamplingFrequencyHz: 8000", "--trace=cuda,nvtx --backtrace=fp --sampling-period=125000 --sample=process-tree --cpuctxsw=process-tree", false},
		"further switches":    {"args: [--cuda-memory-usage=true, --nvtx-domain-include=a]", "--trace=cuda,nvtx " + none + " --cuda-memory-usage=true --nvtx-domain-include=a", false},
		"whatever the output": {"output: {type: ContainerPath, path: /a}\nmatch: {regex: python}", "--trace=cuda,nvtx " + none, false},
	} {
		for _, version := range versions {
			got, err := profile(effective(t, "captureEnvironment: true\n"+c.fields), installed(t, version), c.software)
			require.NoError(t, err, "%s, %s", name, version)
			assert.Equal(t, "--kill=none --wait=primary "+c.want, strings.Join(got, " "), "%s, %s", name, version)
		}
	}
}

// TestArguments_LaterVersion_Switches: switches that only later versions support.
func TestArguments_LaterVersion_Switches(t *testing.T) {
	t.Parallel()
	later := installed(t, "2023.4.4", "--discard-environment", "--trace=cuda-sw", "--sampling-frequency")
	for fields, want := range map[string][2]string{ // on a GPU, and if CUDA is traced in software
		"": {"--trace=cuda,nvtx --sample=none --cpuctxsw=none --discard-environment=true",
			"--trace=cuda-sw,nvtx --sample=none --cpuctxsw=none --discard-environment=true"},
		"captureEnvironment: true\ntrace: [cuda-sw]": {"--trace=cuda-sw --sample=none --cpuctxsw=none", "--trace=cuda-sw --sample=none --cpuctxsw=none"},
		"captureEnvironment: true\ntrace: []\nstart: CUDAProfilerAPI": {
			"--trace=cuda --capture-range=cudaProfilerApi --capture-range-end=stop --sample=none --cpuctxsw=none",
			"--trace=cuda-sw --capture-range=cudaProfilerApi --capture-range-end=stop --sample=none --cpuctxsw=none"},
		"captureEnvironment: true\ntrace: []\ncpuSampling: ProcessTree\nsamplingFrequencyHz: 200": {
			"--trace=none --sampling-frequency=200 --sample=process-tree --cpuctxsw=process-tree",
			"--trace=none --sampling-frequency=200 --sample=process-tree --cpuctxsw=process-tree"},
	} {
		for i, software := range []bool{false, true} {
			got, err := profile(effective(t, fields), later, software)
			require.NoError(t, err, fields)
			assert.Equal(t, "--kill=none --wait=primary "+want[i], strings.Join(got, " "), fields)
		}
	}
}

// TestArguments_SwitchNotThere_Refused names the switch and the field.
func TestArguments_SwitchNotThere_Refused(t *testing.T) {
	t.Parallel()
	const env = "Nsight Systems 2023.4.4 does not support switch --discard-environment, which ProfilerConfig.captureEnvironment: false requires; set captureEnvironment: true, " +
		"which stores the environment of the process in the report, or use a later version"
	for fields, want := range map[string][2]string{
		"": {strings.Replace(env, "2023.4.4", "2022.4.2", 1), env},
		"captureEnvironment: true\npythonSampling: true": {"Nsight Systems 2022.4.2 does not support switch --python-sampling, which ProfilerConfig.pythonSampling requires", ""},
		"captureEnvironment: true\ntrace: [gds]": {
			"Nsight Systems 2022.4.2 does not support switch --trace=gds, which ProfilerConfig.trace requires", "Nsight Systems 2023.4.4 does not support switch --trace=gds, which ProfilerConfig.trace requires"},
		"captureEnvironment: true\nargs: [--python-backtrace=cuda]": {
			"Nsight Systems 2022.4.2 does not support switch --python-backtrace, which ProfilerConfig.args requires; switches are written in full", ""},
		"captureEnvironment: true\nargs: [--cuda-mem=true]": {
			"Nsight Systems 2022.4.2 does not support switch --cuda-mem, which ProfilerConfig.args requires; switches are written in full",
			"Nsight Systems 2023.4.4 does not support switch --cuda-mem, which ProfilerConfig.args requires; switches are written in full"},
	} {
		for i, version := range versions {
			_, err := Arguments(effective(t, fields), installed(t, version), false)
			if want[i] == "" {
				require.NoError(t, err, fields)
				continue
			}
			require.EqualError(t, err, want[i], fields)
			var lacking *Lacking
			require.ErrorAs(t, err, &lacking)
		}
	}
	_, err := Arguments(effective(t, "captureEnvironment: true"), Tool{Version: "0.1"}, false)
	require.EqualError(t, err, "Nsight Systems 0.1 does not support switch --kill", "a tool without help")
}

// TestArguments_RangesRepeat_AsFarAsListed: a version whose help lists the values for the end of a range, but not repeat, is refused; a
// version that an earlier version of this program installed lists no values.
func TestArguments_RangesRepeat_AsFarAsListed(t *testing.T) {
	t.Parallel()
	config := effective(t, "captureEnvironment: true\nstart: CUDAProfilerAPI\ncaptureRange: Repeat\nmaxRanges: 2")
	listed := func(not string) Tool {
		tool := installed(t, "2023.4.4")
		tool.Switches = slices.DeleteFunc(tool.Switches, func(s string) bool { return strings.HasPrefix(s, not) })
		return tool
	}
	_, err := Arguments(config, listed("--capture-range-end=repeat"), false)
	require.EqualError(t, err, "Nsight Systems 2023.4.4 does not support switch --capture-range-end=repeat, which ProfilerConfig.captureRange: Repeat requires; "+
		"set captureRange: First, or use a later version")
	_, err = Arguments(config, listed("--capture-range-end"), false)
	require.EqualError(t, err, "Nsight Systems 2023.4.4 does not support switch --capture-range-end, which ProfilerConfig.captureRange: Repeat requires")
	got, err := profile(config, listed("--capture-range-end="), false)
	require.NoError(t, err)
	assert.Contains(t, got, "--capture-range-end=repeat:2")
}

// TestArguments_EveryConfiguration_OutputUntouched: the log of a container contains the output of its processes, and no process is
// terminated.
func TestArguments_EveryConfiguration_OutputUntouched(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{"", "start: NVTX\nnvtxRange: a", "start: CUDAProfilerAPI\ncaptureRange: Repeat", "cpuSampling: ProcessTree\npythonSampling: true", "duration: 1s\nargs: [--cuda-memory-usage=true]"} {
		for _, version := range versions {
			got, _ := profile(effective(t, fields), installed(t, version), false)
			text := " " + strings.Join(got, " ") + " "
			assert.Contains(t, text, " --kill=none --wait=primary ")
			for _, never := range []string{" -w", "--show-output", "--output", " -o", "sigterm", "--run-as", "--session", "--gpu-metrics"} {
				assert.NotContains(t, text, never)
			}
		}
	}
}

func TestSwitches_Help_SwitchesAndTraces(t *testing.T) {
	t.Parallel()
	const help = `
usage: nsys profile [<args>]

	-t, --trace=

	   Possible values are 'cuda', 'nvtx',
	   'cuda-sw' or 'none'.
	   If 'other' is selected, nothing is.

	--capture-range-end=

	   Possible values are 'none', 'stop', 'repeat[:N][:mode]' or 'repeat-shutdown:N'[:mode].
	   If 'other', it is not.

	--nvtx-domain-[include|exclude]=

	   Applicable only when --trace=nvtx is specified, as in 'quoted'.

	--cuda-graph-trace=<granularity>[:<launch origin>]

	   Set 'node'.
	-x, --stop-on-exit=
`
	assert.Equal(t, []string{
		"--capture-range-end", "--capture-range-end=none", "--capture-range-end=repeat", "--capture-range-end=repeat-shutdown", "--capture-range-end=stop",
		"--cuda-graph-trace", "--nvtx-domain-exclude", "--nvtx-domain-include", "--stop-on-exit", "--trace", "--trace=cuda", "--trace=cuda-sw",
		"--trace=none", "--trace=nvtx",
	}, Switches(help))
	assert.Empty(t, Switches(""))
	var long strings.Builder
	for i := range 3 * maxSwitches {
		long.WriteString("--a" + strings.Repeat("b", i%100) + strings.Repeat("c", i/100) + "=\n")
	}
	assert.Len(t, Switches(long.String()), maxSwitches, "of a hostile image")
}

func TestChoose_Versions_HighestThatFits(t *testing.T) {
	t.Parallel()
	all := []Tool{{Version: "2023.4.4"}, {Version: "2025.10.1"}, {Version: "2025.5.1.121"}}
	for wanted, want := range map[string]string{"": "2025.10.1", "2025": "2025.10.1", "2025.5": "2025.5.1.121", "2025.5.1.121": "2025.5.1.121", "2023.4.4": "2023.4.4"} {
		got, err := Choose(all, wanted)
		require.NoError(t, err, wanted)
		assert.Equal(t, want, got.Version, wanted)
	}
	for wanted, want := range map[string]string{
		"2025.1": "Nsight Systems 2025.1 is not installed; installed versions: 2023.4.4, 2025.5.1.121, 2025.10.1",
	} {
		_, err := Choose(all, wanted)
		require.EqualError(t, err, want)
	}
	_, err := Choose(nil, "")
	require.EqualError(t, err, "no version of Nsight Systems is installed")
	_, err = Choose(nil, "2025")
	require.EqualError(t, err, "Nsight Systems 2025 is not installed; installed versions: none")
}
