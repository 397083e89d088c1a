package nsight

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// Commands are the switches of the commands of nsys for a configuration, each "--name=value".
type Commands struct {
	// Run are the switches of `nsys profile`, or of `nsys launch` if processes wait for a command: everything between the name of the command
	// and the program, without --output and --session-new.
	Run []string
	// Start are the switches of `nsys start` without --output and --session; nil unless processes wait for a command.
	Start []string
}

// Lacking is the error of a version that does not support a configuration.
type Lacking struct {
	// Version is the version of the tool, Switch the unsupported switch: "--name", or "--trace=value".
	Version, Switch string
	// Commands are the commands without the switch; empty: nsys profile.
	Commands string
	// Field is the field of ProfilerConfig that requires it, Fix the remedy; both may be empty.
	Field, Fix string
}

// Error returns one sentence.
func (l *Lacking) Error() string {
	text := fmt.Sprintf("Nsight Systems %s does not support switch %s", l.Version, l.Switch)
	if l.Commands != "" {
		text += " of " + l.Commands
	}
	if l.Field != "" {
		text += fmt.Sprintf(", which %s.%s requires", v1alpha1.KindProfilerConfig, l.Field)
	}
	if l.Fix != "" {
		text += "; " + l.Fix
	}
	return text
}

// Untested is the error of a version that an earlier version of the driver installed, without the switches of the commands that record
// processes that wait.
type Untested struct{ Version string }

// Error returns one sentence.
func (u *Untested) Error() string {
	return fmt.Sprintf("an earlier version of the driver tested Nsight Systems %s on the node, and did not test start %s; "+
		"it is tested again when prism-profiler is updated there", u.Version, v1alpha1.StartManual)
}

// arguments collects the switches of a configuration for one version.
type arguments struct {
	version string
	// run is the command that runs the program, start the command that starts a recording: the same one unless processes wait.
	run, start *command
	err        error
}

// command is a command of nsys.
type command struct {
	// name is empty for nsys profile.
	name string
	// features are the result of Switches for its help.
	features []string
	all      []string
}

// has reports whether the command supports that switch, written with its dashes.
func (c *command) has(name string) bool { return slices.Contains(c.features, name) }

// Arguments returns the switches for a configuration with all defaults. software: CUDA can be traced in software only, as on a MIG device or
// with MPS. The tool's environment needs no other settings. The error is a *Lacking or an *Untested.
//
// The program is not the profiled process but a stand-in for it, so the tool never ends a process, waits for no other process, and does not
// touch the output of processes (--show-output keeps its default: without it the output is only in the report).
func Arguments(c *v1alpha1.ProfilerConfig, tool Tool, software bool) (Commands, error) {
	profile := &command{features: tool.Switches}
	a := &arguments{version: tool.Version, run: profile, start: profile}
	if c.Manual() {
		if len(tool.Launch) == 0 || len(tool.Start) == 0 {
			return Commands{}, &Untested{tool.Version}
		}
		a.run, a.start = &command{name: "nsys launch", features: tool.Launch}, &command{name: "nsys start", features: tool.Start}
	} else {
		a.add(profile, "--kill", "none", "")
	}
	a.add(a.run, "--wait", "primary", "")
	// Tracing by the hardware loses kernels between the start and the stop of recordings.
	a.trace(c, software || c.Manual())
	if !c.Manual() {
		a.times(c)
	}
	a.sampling(c)
	if !*c.CaptureEnvironment {
		a.either("--discard-environment=true", &Lacking{
			Field: "captureEnvironment: false",
			Fix:   "set captureEnvironment: true, which stores the environment of the process in the report, or use a later version",
		})
	}
	for _, arg := range c.Args {
		a.either(arg, &Lacking{Field: "args", Fix: "switches are written in full"})
	}
	commands := Commands{Run: a.run.all}
	if a.start != a.run {
		commands.Start = a.start.all
	}
	return commands, a.err
}

// either adds a switch to the command that supports it.
func (a *arguments) either(arg string, otherwise *Lacking) {
	name, _, _ := strings.Cut(arg, "=")
	to := a.run
	switch {
	case a.run.has(name):
	case a.start.has(name):
		to = a.start
	default:
		otherwise.Switch = name
		if a.start != a.run {
			otherwise.Commands = a.run.name + " and " + a.start.name
		}
		a.fail(otherwise)
	}
	to.all = append(to.all, arg)
}

// add appends a switch that a field requires; if the field is empty, every run requires it.
func (a *arguments) add(to *command, name, value, field string) {
	if !to.has(name) {
		a.fail(&Lacking{Switch: name, Commands: to.name, Field: field})
	}
	to.all = append(to.all, name+"="+value)
}

// fail keeps the first unsupported switch.
func (a *arguments) fail(l *Lacking) {
	if a.err == nil {
		l.Version = a.version
		a.err = l
	}
}

// trace adds the traced APIs. A range that starts the recording requires that its API is traced.
func (a *arguments) trace(c *v1alpha1.ProfilerConfig, software bool) {
	var values []string
	add := func(api v1alpha1.Trace) {
		value := string(a.cuda(api, software))
		if !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	for _, api := range c.Trace {
		add(api)
	}
	switch *c.Start {
	case v1alpha1.StartNVTX:
		add(v1alpha1.TraceNVTX)
	case v1alpha1.StartCUDAProfilerAPI:
		if !slices.Contains(c.Trace, v1alpha1.TraceSoftwareCUDA) {
			add(v1alpha1.TraceCUDA)
		}
	case v1alpha1.StartImmediate, v1alpha1.StartManual:
	}
	for _, value := range values {
		if !a.run.takes(traceSwitch, value) {
			a.fail(&Lacking{Switch: traceSwitch + "=" + value, Commands: a.run.name, Field: "trace"})
		}
	}
	if len(values) == 0 {
		values = []string{"none"}
	}
	a.add(a.run, traceSwitch, strings.Join(values, ","), "trace")
	cuda := slices.ContainsFunc(values, func(value string) bool { return strings.HasPrefix(value, string(v1alpha1.TraceCUDA)) })
	if *c.CUDAGraph == v1alpha1.CUDAGraphNode && cuda {
		a.add(a.run, "--cuda-graph-trace", "node", "cudaGraph")
	}
}

// cuda returns how CUDA is traced: in software if the hardware does not support tracing, which versions without cuda-sw always do.
func (a *arguments) cuda(api v1alpha1.Trace, software bool) v1alpha1.Trace {
	knows := a.run.has(traceSwitch + "=" + string(v1alpha1.TraceSoftwareCUDA))
	switch {
	case api == v1alpha1.TraceCUDA && software && knows:
		return v1alpha1.TraceSoftwareCUDA
	case api == v1alpha1.TraceSoftwareCUDA && !knows:
		return v1alpha1.TraceCUDA
	}
	return api
}

// takes reports whether a switch accepts a value, if the help lists its values.
func (c *command) takes(name, value string) bool {
	listed := slices.ContainsFunc(c.features, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	return !listed || c.has(name+"="+value)
}

// times adds the begin and the end of the recording. The tool counts whole seconds: a part of a second is rounded up.
func (a *arguments) times(c *v1alpha1.ProfilerConfig) {
	switch *c.Start {
	case v1alpha1.StartNVTX:
		a.add(a.run, "--capture-range", "nvtx", "start")
		a.add(a.run, "--nvtx-capture", *c.NVTXRange, "nvtxRange")
		// Otherwise only ranges with registered strings start it, which most frameworks do not use.
		a.add(a.run, "--env-var", "NSYS_NVTX_PROFILER_REGISTER_ONLY=0", "nvtxRange")
	case v1alpha1.StartCUDAProfilerAPI:
		a.add(a.run, "--capture-range", "cudaProfilerApi", "start")
	case v1alpha1.StartImmediate, v1alpha1.StartManual:
	}
	if *c.Start == v1alpha1.StartNVTX || *c.Start == v1alpha1.StartCUDAProfilerAPI {
		a.rangeEnd(c)
	}
	if c.Delay.Duration > 0 {
		a.add(a.run, "--delay", seconds(c.Delay.Duration), "delay")
	}
	if c.Duration != nil {
		a.add(a.run, "--duration", seconds(c.Duration.Duration), "duration")
	}
}

// rangeEnd adds the behavior after the first range: the tool stays until it has answered the call that ends the range. With the default,
// stop-shutdown, it exits with the range. With repeat it writes the files of all ranges after the last one, or when it must exit.
func (a *arguments) rangeEnd(c *v1alpha1.ProfilerConfig) {
	if *c.CaptureRange != v1alpha1.CaptureRangeRepeat {
		a.add(a.run, rangeEndSwitch, "stop", "start")
		return
	}
	const repeat, field = "repeat", "captureRange: Repeat"
	if !a.run.takes(rangeEndSwitch, repeat) {
		a.fail(&Lacking{Switch: rangeEndSwitch + "=" + repeat, Field: field, Fix: "set captureRange: First, or use a later version"})
	}
	a.add(a.run, rangeEndSwitch, fmt.Sprintf("%s:%d", repeat, *c.MaxRanges), field)
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10)
}

// backtraces maps to the tool's names.
var backtraces = map[v1alpha1.Backtrace]string{
	v1alpha1.BacktraceNone: "none", v1alpha1.BacktraceLBR: "lbr", v1alpha1.BacktraceFramePointer: "fp", v1alpha1.BacktraceDWARF: "dwarf",
}

// sampling adds the samples of the CPU. By default there are none, because they require rights that containers do not have.
func (a *arguments) sampling(c *v1alpha1.ProfilerConfig) {
	scope := "none"
	if *c.CPUSampling == v1alpha1.CPUSamplingProcessTree {
		scope = "process-tree"
		if c.Backtrace != nil {
			a.add(a.start, "--backtrace", backtraces[*c.Backtrace], "backtrace")
		}
		switch {
		case c.SamplingFrequencyHz != nil:
			a.frequency(int64(*c.SamplingFrequencyHz))
		case c.Manual():
			a.frequency(defaultFrequency(c)) // a command may set another one
		}
	}
	a.add(a.start, "--sample", scope, "cpuSampling")
	a.add(a.start, "--cpuctxsw", scope, "cpuSampling")
	if *c.PythonSampling {
		a.add(a.run, "--python-sampling", "true", "pythonSampling")
	}
}

// defaultFrequency returns the default of the profiler.
func defaultFrequency(c *v1alpha1.ProfilerConfig) int64 {
	if c.Backtrace != nil && *c.Backtrace == v1alpha1.BacktraceDWARF {
		return 500
	}
	return 1000
}

// frequency adds the number of CPU samples per second. Most versions only know the period: nanoseconds of the CPU clock.
func (a *arguments) frequency(hz int64) {
	const name = "--sampling-frequency"
	if a.start.has(name) {
		a.add(a.start, name, strconv.FormatInt(hz, 10), "samplingFrequencyHz")
		return
	}
	a.add(a.start, "--sampling-period", strconv.FormatInt(int64(time.Second)/hz, 10), "samplingFrequencyHz")
}
