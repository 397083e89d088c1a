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

// Lacking is the error of a version that does not support a configuration.
type Lacking struct {
	// Version is the version of the tool, Switch the unsupported switch: "--name", or "--trace=value".
	Version, Switch string
	// Field is the field of ProfilerConfig that requires it, Fix the remedy; both may be empty.
	Field, Fix string
}

// Error returns one sentence.
func (l *Lacking) Error() string {
	text := fmt.Sprintf("Nsight Systems %s does not support switch %s", l.Version, l.Switch)
	if l.Field != "" {
		text += fmt.Sprintf(", which %s.%s requires", v1alpha1.KindProfilerConfig, l.Field)
	}
	if l.Fix != "" {
		text += "; " + l.Fix
	}
	return text
}

// arguments collects the switches of a configuration for one version.
type arguments struct {
	tool Tool
	all  []string
	err  error
}

// Arguments returns the switches of `nsys profile` for a configuration with all defaults: everything between "profile" and the program,
// without --output. software: CUDA can be traced in software only, as on a MIG device or with MPS. The tool's environment needs no other
// settings. The error is a *Lacking.
//
// The program is not the profiled process but a stand-in for it, so the tool never ends a process, waits for no other process, and does not
// touch the output of processes (--show-output keeps its default: without it the output is only in the report).
func Arguments(c *v1alpha1.ProfilerConfig, tool Tool, software bool) ([]string, error) {
	a := &arguments{tool: tool}
	a.add("--kill", "none", "")
	a.add("--wait", "primary", "")
	a.trace(c, software)
	a.start(c)
	a.sampling(c)
	if !*c.CaptureEnvironment {
		a.require("--discard-environment", "true", &Lacking{
			Field: "captureEnvironment: false",
			Fix:   "set captureEnvironment: true, which stores the environment of the process in the report, or use a later version",
		})
	}
	for _, arg := range c.Args {
		name, _, _ := strings.Cut(arg, "=")
		if !tool.has(name) {
			a.fail(&Lacking{Switch: name, Field: "args", Fix: "switches are written in full"})
		}
		a.all = append(a.all, arg)
	}
	return a.all, a.err
}

// add appends a switch that a field requires; if the field is empty, every run requires it.
func (a *arguments) add(name, value, field string) { a.require(name, value, &Lacking{Field: field}) }

func (a *arguments) require(name, value string, otherwise *Lacking) {
	if !a.tool.has(name) {
		otherwise.Switch = name
		a.fail(otherwise)
	}
	a.all = append(a.all, name+"="+value)
}

// fail keeps the first unsupported switch.
func (a *arguments) fail(l *Lacking) {
	if a.err == nil {
		l.Version = a.tool.Version
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
		if !a.takes(traceSwitch, value) {
			a.fail(&Lacking{Switch: traceSwitch + "=" + value, Field: "trace"})
		}
	}
	if len(values) == 0 {
		values = []string{"none"}
	}
	a.add(traceSwitch, strings.Join(values, ","), "trace")
	cuda := slices.ContainsFunc(values, func(value string) bool { return strings.HasPrefix(value, string(v1alpha1.TraceCUDA)) })
	if *c.CUDAGraph == v1alpha1.CUDAGraphNode && cuda {
		a.add("--cuda-graph-trace", "node", "cudaGraph")
	}
}

// cuda returns how CUDA is traced: in software if the hardware does not support tracing, which versions without cuda-sw always do.
func (a *arguments) cuda(api v1alpha1.Trace, software bool) v1alpha1.Trace {
	knows := a.tool.has(traceSwitch + "=" + string(v1alpha1.TraceSoftwareCUDA))
	switch {
	case api == v1alpha1.TraceCUDA && software && knows:
		return v1alpha1.TraceSoftwareCUDA
	case api == v1alpha1.TraceSoftwareCUDA && !knows:
		return v1alpha1.TraceCUDA
	}
	return api
}

// takes reports whether a switch accepts a value, if the help lists its values.
func (a *arguments) takes(name, value string) bool {
	listed := slices.ContainsFunc(a.tool.Switches, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	return !listed || a.tool.has(name+"="+value)
}

// start adds the begin and the end of the recording. The tool counts whole seconds: a part of a second is rounded up.
func (a *arguments) start(c *v1alpha1.ProfilerConfig) {
	switch *c.Start {
	case v1alpha1.StartNVTX:
		a.add("--capture-range", "nvtx", "start")
		a.add("--nvtx-capture", *c.NVTXRange, "nvtxRange")
		// Otherwise only ranges with registered strings start it, which most frameworks do not use.
		a.add("--env-var", "NSYS_NVTX_PROFILER_REGISTER_ONLY=0", "nvtxRange")
	case v1alpha1.StartCUDAProfilerAPI:
		a.add("--capture-range", "cudaProfilerApi", "start")
	case v1alpha1.StartImmediate, v1alpha1.StartManual:
	}
	if *c.Start == v1alpha1.StartNVTX || *c.Start == v1alpha1.StartCUDAProfilerAPI {
		a.rangeEnd(c)
	}
	if c.Delay.Duration > 0 {
		a.add("--delay", seconds(c.Delay.Duration), "delay")
	}
	if c.Duration != nil {
		a.add("--duration", seconds(c.Duration.Duration), "duration")
	}
}

// rangeEnd adds the behavior after the first range: the tool stays until it has answered the call that ends the range. With the default,
// stop-shutdown, it exits with the range. With repeat it writes the files of all ranges after the last one, or when it must exit.
func (a *arguments) rangeEnd(c *v1alpha1.ProfilerConfig) {
	if *c.CaptureRange != v1alpha1.CaptureRangeRepeat {
		a.add(rangeEndSwitch, "stop", "start")
		return
	}
	const repeat, field = "repeat", "captureRange: Repeat"
	if !a.takes(rangeEndSwitch, repeat) {
		a.fail(&Lacking{Switch: rangeEndSwitch + "=" + repeat, Field: field, Fix: "set captureRange: First, or use a later version"})
	}
	a.add(rangeEndSwitch, fmt.Sprintf("%s:%d", repeat, *c.MaxRanges), field)
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
			a.add("--backtrace", backtraces[*c.Backtrace], "backtrace")
		}
		if c.SamplingFrequencyHz != nil {
			a.frequency(int64(*c.SamplingFrequencyHz))
		}
	}
	a.add("--sample", scope, "cpuSampling")
	a.add("--cpuctxsw", scope, "cpuSampling")
	if *c.PythonSampling {
		a.add("--python-sampling", "true", "pythonSampling")
	}
}

// frequency adds the number of CPU samples per second. Most versions only know the period: nanoseconds of the CPU clock.
func (a *arguments) frequency(hz int64) {
	const name = "--sampling-frequency"
	if a.tool.has(name) {
		a.add(name, strconv.FormatInt(hz, 10), "samplingFrequencyHz")
		return
	}
	a.add("--sampling-period", strconv.FormatInt(int64(time.Second)/hz, 10), "samplingFrequencyHz")
}
