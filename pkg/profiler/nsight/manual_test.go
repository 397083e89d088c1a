package nsight

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestArguments_Manual_LaunchAndStart: the program is launched with what is traced, and each start selects samples. Neither has times.
func TestArguments_Manual_LaunchAndStart(t *testing.T) {
	t.Parallel()
	const none = "--sample=none --cpuctxsw=none"
	for fields, want := range map[string][2]string{
		"":                                 {"--wait=primary --trace=cuda,nvtx", none},
		"duration: 1m\ntrace: []":          {"--wait=primary --trace=none", none},
		"trace: [cuda-sw]":                 {"--wait=primary --trace=cuda", none},
		"cudaGraph: Node\ntrace: [cuda]":   {"--wait=primary --trace=cuda --cuda-graph-trace=node", none},
		"cpuSampling: ProcessTree":         {"--wait=primary --trace=cuda,nvtx", "--sampling-period=1000000 --sample=process-tree --cpuctxsw=process-tree"},
		"trace: [osrt]\narm: OnDemand":     {"--wait=primary --trace=osrt", none},
		"args: [--cuda-memory-usage=true]": {"--wait=primary --trace=cuda,nvtx --cuda-memory-usage=true", none},
		"args: [--samples-per-backtrace=4, --osrt-threshold=9]": {
			"--wait=primary --trace=cuda,nvtx --osrt-threshold=9", none + " --samples-per-backtrace=4"},
		"cpuSampling: ProcessTree\nbacktrace: DWARF": {
			"--wait=primary --trace=cuda,nvtx", "--backtrace=dwarf --sampling-period=2000000 --sample=process-tree --cpuctxsw=process-tree"},
		"cpuSampling: ProcessTree\nbacktrace: FramePointer\nsamplingFrequencyHz: 8000": {
			"--wait=primary --trace=cuda,nvtx", "--backtrace=fp --sampling-period=125000 --sample=process-tree --cpuctxsw=process-tree"},
	} {
		for _, version := range versions {
			for _, manual := range []string{"start: Manual", "mode: Launch"} {
				got, err := Arguments(effective(t, "captureEnvironment: true\n"+manual+"\n"+fields), installed(t, version), false)
				require.NoError(t, err, "%s, %s", fields, version)
				assert.Equal(t, want, [2]string{strings.Join(got.Run, " "), strings.Join(got.Start, " ")}, "%s, %s", fields, version)
			}
		}
	}
	got, err := Arguments(effective(t, "captureEnvironment: true\nstart: Manual\npythonSampling: true"), installed(t, "2023.4.4"), false)
	require.NoError(t, err)
	assert.Equal(t, Commands{
		Run: []string{"--wait=primary", "--trace=cuda,nvtx", "--python-sampling=true"}, Start: strings.Fields(none),
	}, got)
}

// TestArguments_ManualWithLaterVersion_CommandThatHasTheSwitch: CUDA is traced in software, because tracing by the hardware loses kernels
// between two recordings, and the environment is omitted by the command that can.
func TestArguments_ManualWithLaterVersion_CommandThatHasTheSwitch(t *testing.T) {
	t.Parallel()
	const start = "--sample=none --cpuctxsw=none"
	for _, c := range []struct{ launch, start, run, begin string }{
		{"--trace=cuda-sw --discard-environment", "", "--wait=primary --trace=cuda-sw,nvtx --discard-environment=true", start},
		{"--trace=cuda-sw", "--discard-environment", "--wait=primary --trace=cuda-sw,nvtx", start + " --discard-environment=true"},
		{"--discard-environment", "--discard-environment --sampling-frequency", "--wait=primary --trace=cuda,nvtx --discard-environment=true", start},
	} {
		tool := installed(t, "2023.4.4", "--trace=cuda-sw", "--discard-environment")
		tool.Launch, tool.Start = append(tool.Launch, strings.Fields(c.launch)...), append(tool.Start, strings.Fields(c.start)...)
		got, err := Arguments(effective(t, "start: Manual"), tool, false)
		require.NoError(t, err)
		assert.Equal(t, Commands{Run: strings.Fields(c.run), Start: strings.Fields(c.begin)}, got)
	}
	tool := installed(t, "2023.4.4")
	tool.Start = append(tool.Start, "--sampling-frequency")
	got, err := Arguments(effective(t, "captureEnvironment: true\nstart: Manual\ncpuSampling: ProcessTree\nsamplingFrequencyHz: 200"), tool, false)
	require.NoError(t, err)
	assert.Equal(t, strings.Fields("--sampling-frequency=200 --sample=process-tree --cpuctxsw=process-tree"), got.Start)
}

// TestArguments_ManualNotPossible_Refused names the commands, and a version whose commands were never listed.
func TestArguments_ManualNotPossible_Refused(t *testing.T) {
	t.Parallel()
	const lacks = "Nsight Systems 2023.4.4 does not support switch "
	for fields, want := range map[string]string{
		"": lacks + "--discard-environment of nsys launch and nsys start, which ProfilerConfig.captureEnvironment: false requires; " +
			"set captureEnvironment: true, which stores the environment of the process in the report, or use a later version",
		"captureEnvironment: true\ntrace: [gds]":            lacks + "--trace=gds of nsys launch, which ProfilerConfig.trace requires",
		"captureEnvironment: true\nargs: [--cuda-mem=true]": lacks + "--cuda-mem of nsys launch and nsys start, which ProfilerConfig.args requires; switches are written in full",
	} {
		_, err := Arguments(effective(t, "start: Manual\n"+fields), installed(t, "2023.4.4"), false)
		require.EqualError(t, err, want, fields)
	}
	tool := installed(t, "2023.4.4")
	for _, list := range []*[]string{&tool.Start, &tool.Launch} {
		*list = nil
		_, err := Arguments(effective(t, "captureEnvironment: true\nmode: Launch"), tool, false)
		require.EqualError(t, err, "an earlier version of the driver tested Nsight Systems 2023.4.4 on the node, and did not test start Manual; "+
			"it is tested again when prism-profiler is updated there")
		var untested *Untested
		require.ErrorAs(t, err, &untested)
	}
	_, err := Arguments(effective(t, "captureEnvironment: true"), tool, false)
	require.NoError(t, err, "other starts")
}
