package v1alpha1

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const hour = time.Hour

const (
	maxPatterns      = 16
	maxContainers    = 32
	maxArgs          = 32
	maxArgBytes      = 1024
	maxRangeBytes    = 256
	maxPathBytes     = 1024
	maxFileNameBytes = 200
)

var (
	tools           = []ProfilerTool{ToolNsightSystems, ToolNsightCompute}
	injections      = []Injection{InjectionPreload, InjectionNRI, InjectionNone}
	dialects        = []RegexDialect{DialectPerl, DialectRE2}
	targets         = []MatchTarget{TargetCommandLine, TargetExecutable, TargetArgv0}
	modes           = []ProfilerMode{ModeProfile, ModeLaunch}
	starts          = []ProfilerStart{StartImmediate, StartManual, StartCUDAProfilerAPI, StartNVTX}
	arms            = []ProfilerArm{ArmAlways, ArmOnDemand}
	captureRanges   = []CaptureRange{CaptureRangeFirst, CaptureRangeRepeat}
	cudaGraphs      = []CUDAGraph{CUDAGraphGraph, CUDAGraphNode}
	cpuSamplings    = []CPUSampling{CPUSamplingNone, CPUSamplingProcessTree}
	backtraces      = []Backtrace{BacktraceNone, BacktraceLBR, BacktraceFramePointer, BacktraceDWARF}
	outputTypes     = []OutputType{OutputNode, OutputContainerPath}
	failurePolicies = []FailurePolicy{FailOpen, FailClosed}

	traces = []Trace{
		TraceCUDA, TraceSoftwareCUDA, TraceNVTX, "osrt", "cublas", "cublas-verbose", "cudnn", "cusparse", "cusparse-verbose",
		"cusolver", "cusolver-verbose", "nccl", "mpi", "ucx", "oshmem", "openacc", "openmp", "opengl", "vulkan",
		"nvvideo", "gds", "python-gil",
	}

	versionForm = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9}){0,3}$`)
	globForm    = regexp.MustCompile(`^[a-z0-9*?\[\]^-]{1,63}$`)
	switchForm  = regexp.MustCompile(`^--[a-z][a-z0-9-]*(=.*)?$`)
)

// Validate returns nil or a *Problems. It does not check whether the tool and its version are installed on a node and support the settings.
func (c *ProfilerConfig) Validate() error {
	p := &problems{}
	c.validateTool(p)
	if c.Match != nil {
		c.Match.validate(p, "match")
	}
	c.validateRecording(p)
	c.validateContent(p)
	if c.Output != nil {
		c.Output.validate(p, "output")
	}
	oneOf(p, "failurePolicy", c.FailurePolicy, failurePolicies)
	oneOf(p, "claimOverride", c.ClaimOverride, claimOverrides)
	return p.err(KindProfilerConfig)
}

func (c *ProfilerConfig) validateTool(p *problems) {
	oneOf(p, "tool", c.Tool, tools)
	if !isUnset(c.ToolVersion) && !versionForm.MatchString(*c.ToolVersion) {
		p.add("toolVersion", "must be numbers with dots, for example 2025.5.1, got %s", quote(*c.ToolVersion))
	}
	oneOf(p, "injection", c.Injection, injections)
	atMost(p, "containers", c.Containers, maxContainers)
	for i, glob := range c.Containers {
		if _, err := path.Match(glob, ""); err != nil || !globForm.MatchString(glob) {
			p.add(index("containers", i),
				"must be a glob of container names with lower-case letters, digits, -, *, ? and [a-z], got %s", quote(glob))
		}
	}
}

func (m *ProcessMatch) validate(p *problems, at string) {
	oneOf(p, join(at, "dialect"), m.Dialect, dialects)
	dialect := DialectPerl
	if m.Dialect != nil {
		dialect = *m.Dialect
	}
	if m.Regex != nil {
		checkPattern(p, join(at, "regex"), *m.Regex, dialect)
	}
	atMost(p, join(at, "exclude"), m.Exclude, maxPatterns)
	for i, pattern := range m.Exclude {
		if pattern == "" {
			p.add(index(join(at, "exclude"), i), "must not be empty, since an empty pattern excludes every process")
		}
		checkPattern(p, index(join(at, "exclude"), i), pattern, dialect)
	}
	oneOf(p, join(at, "target"), m.Target, targets)
	between(p, join(at, "maxSessions"), m.MaxSessions, 1, MaxSessions)
}

func (c *ProfilerConfig) validateRecording(p *problems) {
	oneOf(p, "mode", c.Mode, modes)
	oneOf(p, "start", c.Start, starts)
	oneOf(p, "arm", c.Arm, arms)
	c.validateRange(p)
	c.validateRanges(p)
	within(p, "delay", c.Delay, 0, 24*hour)
	within(p, "duration", c.Duration, time.Millisecond, 24*hour)
	c.validateManual(p)
	c.validateNone(p)
}

// validateNone refuses settings that only a process in a container can follow if the profiler is injected into none.
func (c *ProfilerConfig) validateNone(p *problems) {
	if c.Injection == nil || *c.Injection != InjectionNone {
		return
	}
	if c.Start != nil && (*c.Start == StartNVTX || *c.Start == StartCUDAProfilerAPI) {
		p.add("start", "must be %s or %s with injection %s, got %s", StartImmediate, StartManual, InjectionNone, *c.Start)
	}
	if c.Delay != nil && c.Delay.Duration > 0 && !c.Manual() {
		p.add("delay", "has no effect with injection %s; remove it", InjectionNone)
	}
	if c.Output != nil && c.Output.Type != nil && *c.Output.Type == OutputContainerPath {
		p.add("output.type", "must be %s with injection %s, got %s", OutputNode, InjectionNone, OutputContainerPath)
	}
}

// validateManual refuses settings that have no effect if a command starts each recording; validateRange and validateRanges refuse ranges.
func (c *ProfilerConfig) validateManual(p *problems) {
	if !c.Manual() {
		return
	}
	if start := c.effectiveStart(); start != nil && *start != StartManual {
		p.add("mode", "%s is the same as start %s, but start is %s; remove one of them", ModeLaunch, StartManual, *start)
		return
	}
	const command = "has no effect with start %s: commands start each recording; remove it"
	if c.Delay != nil && c.Delay.Duration > 0 {
		p.add("delay", command, StartManual)
	}
	if c.MaxRanges != nil && c.CaptureRange == nil {
		p.add("maxRanges", command, StartManual)
	}
}

// effectiveStart returns the start, which mode Launch sets unless another one is set.
func (c *ProfilerConfig) effectiveStart() *ProfilerStart {
	if c.Manual() && (c.Start == nil || *c.Start == StartImmediate) {
		return new(StartManual)
	}
	return c.Start
}

func (c *ProfilerConfig) validateRange(p *problems) {
	start := c.effectiveStart()
	starting := start != nil && *start == StartNVTX
	switch {
	case starting && isUnset(c.NVTXRange):
		p.add("nvtxRange", "required with start %s: the range that starts the recording", StartNVTX)
	case isUnset(c.NVTXRange):
	case start != nil && !starting:
		p.add("nvtxRange", "has no effect with start %s; remove it or set start to %s", *start, StartNVTX)
	default:
		printable(p, "nvtxRange", *c.NVTXRange, maxRangeBytes)
	}
}

// validateRanges refuses several ranges if the recording does not begin with a range.
func (c *ProfilerConfig) validateRanges(p *problems) {
	oneOf(p, "captureRange", c.CaptureRange, captureRanges)
	between(p, "maxRanges", c.MaxRanges, 1, MaxRanges)
	if c.CaptureRange == nil {
		return
	}
	if *c.CaptureRange != CaptureRangeRepeat {
		if c.MaxRanges != nil {
			p.add("maxRanges", "has no effect with captureRange %s; remove it or set captureRange to %s", *c.CaptureRange, CaptureRangeRepeat)
		}
		return
	}
	if start := c.effectiveStart(); start != nil && *start != StartNVTX && *start != StartCUDAProfilerAPI {
		p.add("captureRange", "%s has no effect with start %s; remove it or set start to %s or %s",
			CaptureRangeRepeat, *start, StartNVTX, StartCUDAProfilerAPI)
	}
	// Versions of the profiler ignore duration with Repeat, or record no further range after a range that takes longer.
	if c.Duration != nil {
		p.add("duration", "must not be set with captureRange %s, which records each range to its end; remove it", CaptureRangeRepeat)
	}
}

func (c *ProfilerConfig) validateContent(p *problems) {
	eachOf(p, "trace", c.Trace, traces)
	if slices.Contains(c.Trace, TraceCUDA) && slices.Contains(c.Trace, TraceSoftwareCUDA) {
		p.add("trace", "cuda and cuda-sw are mutually exclusive; remove one of them")
	}
	oneOf(p, "cudaGraph", c.CUDAGraph, cudaGraphs)
	c.validateSampling(p)
	atMost(p, "args", c.Args, maxArgs)
	for i, arg := range c.Args {
		checkSwitch(p, index("args", i), arg)
	}
}

// validateSampling refuses settings of CPU samples without CPU sampling.
func (c *ProfilerConfig) validateSampling(p *problems) {
	oneOf(p, "cpuSampling", c.CPUSampling, cpuSamplings)
	oneOf(p, "backtrace", c.Backtrace, backtraces)
	between(p, "samplingFrequencyHz", c.SamplingFrequencyHz, 100, 8000)
	if c.CPUSampling == nil || *c.CPUSampling != CPUSamplingNone {
		return
	}
	const without = "has no effect with cpuSampling %s; remove it or set cpuSampling to %s"
	if c.Backtrace != nil && *c.Backtrace != BacktraceNone {
		p.add("backtrace", without, CPUSamplingNone, CPUSamplingProcessTree)
	}
	if c.SamplingFrequencyHz != nil {
		p.add("samplingFrequencyHz", without, CPUSamplingNone, CPUSamplingProcessTree)
	}
}

// deniedSwitches are switches that a field sets, that the driver sets itself, that affect more than the processes of the container, or that
// write further files. A trailing star matches any ending.
var deniedSwitches = []string{
	"output", "session*", "run-as", "command-file", "after-*", "ftrace*", "gpu-metrics-*", "env-var", "inherit-environment", "show-output",
	"kill", "wait", "start-later", "stop-on-exit", "force-overwrite", "export", "stats", "help", "trace", "sample", "cpuctxsw", "backtrace",
	"sampling-period", "sampling-frequency", "python-sampling", "capture-range*", "nvtx-capture", "delay", "duration*", "cuda-graph-trace",
	"discard-environment", "event-*", "gpuctxsw", "gpu-video-*", "nic-metrics", "ib-*", "soc-metrics*", "storage-metrics*", "os-events",
	"cpu-core-*", "cpu-socket-*", "process-scope", "cuda-trace-scope", "enable", "hotkey-capture", "xhv-*", "isr",
}

// checkSwitch refuses arguments that could be parsed as the command, and denied switches. Abbreviations are denied too, because the
// profiler completes them.
func checkSwitch(p *problems, at, arg string) {
	if len(arg) > maxArgBytes || !switchForm.MatchString(arg) {
		p.add(at, "must be --name or --name=value of at most %d bytes, got %s", maxArgBytes, quote(arg))
		return
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
	for _, denied := range deniedSwitches {
		stem, open := strings.CutSuffix(denied, "*")
		if strings.HasPrefix(stem, name) || open && strings.HasPrefix(name, stem) {
			p.add(at, "switch --%s is forbidden, also abbreviated; forbidden switches: --%s", name, strings.Join(deniedSwitches, ", --"))
			return
		}
	}
}

func (o *ProfilerOutput) validate(p *problems, at string) {
	oneOf(p, join(at, "type"), o.Type, outputTypes)
	o.validatePath(p, join(at, "path"))
	if o.FileName != nil {
		checkFileName(p, join(at, "fileName"), *o.FileName)
	}
	if o.MaxBytes != nil && o.MaxBytes.CmpInt64(mebibyte) < 0 {
		p.add(join(at, "maxBytes"), "must be greater than or equal to 1Mi, got %s", o.MaxBytes)
	}
	within(p, join(at, "retention"), o.Retention, time.Minute, 365*24*hour)
	if o.Upload != nil && o.Upload.SecretClass != nil {
		label(p, join(at, "upload.secretClass"), *o.Upload.SecretClass)
	}
}

// kernelTrees are virtual file systems of a container.
var kernelTrees = []string{"/proc", "/sys", "/dev"}

func (o *ProfilerOutput) validatePath(p *problems, at string) {
	inContainer := o.Type != nil && *o.Type == OutputContainerPath
	if isUnset(o.Path) {
		if inContainer {
			p.add(at, "required with type %s: a directory in the container", OutputContainerPath)
		}
		return
	}
	if o.Type != nil && !inContainer {
		p.add(at, "has no effect with type %s; remove it or set type to %s", *o.Type, OutputContainerPath)
	}
	value := path.Clean(*o.Path)
	if !path.IsAbs(value) || leavesUp(*o.Path) || value == "/" {
		p.add(at, "must be an absolute path without .. and not /, got %s", quote(*o.Path))
		return
	}
	for _, tree := range kernelTrees {
		if value == tree || strings.HasPrefix(value, tree+"/") {
			p.add(at, "must not be below %s, got %s; choose another directory of the container", tree, quote(value))
		}
	}
	printable(p, at, value, maxPathBytes)
	if rest := checkPlaceholders(p, at, value); strings.ContainsAny(rest, "{}%") {
		p.add(at, "must not contain %% or single braces, got %s", quote(value))
	}
}

// placeholder is text in braces, with the mark that profilers and injectors write before the name of an environment variable.
var placeholder = regexp.MustCompile(`(%?)\{([^{}]*)\}`)

// variableForm is the name of an environment variable.
var variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

func checkFileName(p *problems, at, template string) {
	printable(p, at, template, maxFileNameBytes)
	rest := checkPlaceholders(p, at, template)
	if strings.ContainsAny(rest, "{}/%") || strings.HasPrefix(template, ".") || strings.HasPrefix(template, "-") {
		p.add(at, "must be a file name without /, %% and single braces that starts with neither . nor -, got %s",
			quote(template))
	}
}

// checkPlaceholders refuses unknown placeholders, and returns the template without placeholders.
func checkPlaceholders(p *problems, at, template string) string {
	for _, found := range placeholder.FindAllStringSubmatch(template, -1) {
		switch variable := found[1] != ""; {
		case variable && !variableForm.MatchString(found[2]):
			p.add(at, "%s must name an environment variable in at most 64 letters, digits and _", quote(found[0]))
		case !variable && !slices.Contains(FileNamePlaceholders, found[2]):
			p.add(at, "unsupported placeholder %s; supported placeholders: {%s}, and %%{NAME} for an environment variable", quote(found[0]),
				strings.Join(FileNamePlaceholders, "}, {"))
		}
	}
	return placeholder.ReplaceAllString(template, "")
}

// isUnset reports whether a text is absent; an empty text counts as absent, so that a claim can reset a value of its class.
func isUnset(text *string) bool { return text == nil || *text == "" }

// within refuses a set duration outside shortest..longest.
func within(p *problems, at string, value *metav1.Duration, shortest, longest time.Duration) {
	if value != nil && (value.Duration < shortest || value.Duration > longest) {
		p.add(at, "must be between %s and %s, got %s", shortest, longest, value.Duration)
	}
}

// printable refuses text that is empty, too long, or contains invisible characters.
func printable(p *problems, at, value string, limit int) {
	hidden := strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) })
	if value == "" || len(value) > limit || hidden {
		p.add(at, "must be 1 to %d bytes of printable text, got %s", limit, quote(value))
	}
}

var labelForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// label refuses values that are not RFC 1123 label names.
func label(p *problems, at, value string) {
	if !labelForm.MatchString(value) {
		p.add(at, "must be 1 to 63 lower-case letters, digits and - and start and end with a letter or digit, got %s", quote(value))
	}
}
