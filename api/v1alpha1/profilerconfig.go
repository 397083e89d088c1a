package v1alpha1

import (
	"path"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProfilerConfig configures which processes in the containers of a claim are profiled, how, and where reports are stored. It cannot specify
// paths, environment variables or programs of the host.
type ProfilerConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Enabled is whether processes are profiled; false in a claim disables the profile of its class and of the cluster's defaults.
	// Default: true.
	Enabled *bool `json:"enabled,omitempty"`
	// Tool is the profiler. NsightCompute is not supported by this version of the
	// driver. Default: NsightSystems.
	Tool *ProfilerTool `json:"tool,omitempty"`
	// ToolVersion is a version that is installed on the node, for example
	// 2025.5.1. Unset or empty: the default version of the node.
	ToolVersion *string `json:"toolVersion,omitempty"`
	// Injection is how the profiler is injected into processes. NRI is not supported by this version of the driver. None runs nothing in the
	// containers: the configuration is for the counters of GPUs, so it requires a GPUMetricsConfig with source NsightSystems, and only
	// toolVersion, start, duration and output have an effect; a claim that records counters without a ProfilerConfig has it. Default: Preload.
	Injection *Injection `json:"injection,omitempty"`
	// Containers are globs of container names. Unset: all that use the claim.
	Containers []string `json:"containers,omitempty"`
	// Match selects processes in these containers. Unset: the first process that
	// is not excluded.
	Match *ProcessMatch `json:"match,omitempty"`

	// Mode is the mode of the profiler. Launch is the same as start Manual.
	// Default: Profile.
	Mode *ProfilerMode `json:"mode,omitempty"`
	// Start is what starts the recording. With Manual a process waits until kubectl prism profile start records it, any number of times.
	// Default: Immediate.
	Start *ProfilerStart `json:"start,omitempty"`
	// Arm is when processes match: with OnDemand none does until kubectl prism profile arm; processes that run already stay unprofiled.
	// Default: Always.
	Arm *ProfilerArm `json:"arm,omitempty"`
	// NVTXRange is the NVTX range that starts the recording, as range@domain. Required with start NVTX, forbidden otherwise; empty stands
	// for unset.
	NVTXRange *string `json:"nvtxRange,omitempty"`
	// CaptureRange limits the recorded ranges of a process: First, or Repeat, which records each range into its own report and requires
	// start NVTX or CUDAProfilerAPI. With Repeat the reports are stored after the last range, or when the process exits. Default: First.
	CaptureRange *CaptureRange `json:"captureRange,omitempty"`
	// MaxRanges is the number of ranges of a process that are recorded with captureRange Repeat; later ones are not recorded. Unset: 16.
	MaxRanges *int32 `json:"maxRanges,omitempty"`
	// Delay before the recording starts; not with start Manual. Default: 0s.
	Delay *metav1.Duration `json:"delay,omitempty"`
	// Duration of the recording; the process continues after it. With start Manual it is the default of each recording. Unset: until the
	// process exits or the recording is stopped.
	Duration *metav1.Duration `json:"duration,omitempty"`

	// Trace are the APIs that are traced. Default: cuda, nvtx.
	Trace []Trace `json:"trace,omitempty"`
	// CUDAGraph is the granularity of CUDA graph tracing. Default: Graph.
	CUDAGraph *CUDAGraph `json:"cudaGraph,omitempty"`
	// CPUSampling selects the samples of the CPU; it requires perf events on the node. Default: None.
	CPUSampling *CPUSampling `json:"cpuSampling,omitempty"`
	// Backtrace is the method to unwind call stacks of CPU samples; it requires cpuSampling. Unset: the default of the profiler.
	Backtrace *Backtrace `json:"backtrace,omitempty"`
	// SamplingFrequencyHz is the number of CPU samples per second; it requires cpuSampling. Unset: the default of the profiler, and with start
	// Manual 1000, or 500 with backtrace DWARF.
	SamplingFrequencyHz *int32 `json:"samplingFrequencyHz,omitempty"`
	// PythonSampling records Python call stacks. Default: false.
	PythonSampling *bool `json:"pythonSampling,omitempty"`
	// CaptureEnvironment stores the environment of the process in the report. The environment often contains secrets. Versions of the
	// profiler that cannot omit it require true. Default: false.
	CaptureEnvironment *bool `json:"captureEnvironment,omitempty"`
	// CaptureOutput stores stdout and stderr of the process in the report; true is
	// not supported by this version of the driver. Default: false.
	CaptureOutput *bool `json:"captureOutput,omitempty"`
	// Args are further switches of the profiler, each --name or --name=value. The
	// cluster's policy must allow them.
	Args []string `json:"args,omitempty"`

	// Output is where reports are stored. Unset: on the node.
	Output *ProfilerOutput `json:"output,omitempty"`
	// FailurePolicy selects the behavior if the profiler cannot start: FailOpen runs the process without it. Default: FailOpen.
	FailurePolicy *FailurePolicy `json:"failurePolicy,omitempty"`
	// ClaimOverride is whether claims may override the options of their class. Only a DeviceClass may set it. Default: Allowed.
	ClaimOverride *ClaimOverride `json:"claimOverride,omitempty"`
}

// ProcessMatch selects the processes to profile.
type ProcessMatch struct {
	// Regex is matched against target, without back-references. Empty: the first
	// process that is not excluded. Default: empty.
	Regex *string `json:"regex,omitempty"`
	// Dialect of regex and exclude; Perl supports lookaheads. Default: Perl.
	Dialect *RegexDialect `json:"dialect,omitempty"`
	// Exclude are patterns of processes that are never profiled.
	Exclude []string `json:"exclude,omitempty"`
	// Target is the text that patterns are matched against. Default: CommandLine.
	Target *MatchTarget `json:"target,omitempty"`
	// UseDefaultExcludes excludes shells and small tools. Default: true.
	UseDefaultExcludes *bool `json:"useDefaultExcludes,omitempty"`
	// IncludeExecSessions also profiles processes of kubectl exec. Default: false.
	IncludeExecSessions *bool `json:"includeExecSessions,omitempty"`
	// MaxSessions is the number of processes of a container that are profiled at once. Unset: 16 with a regex, else 1.
	MaxSessions *int32 `json:"maxSessions,omitempty"`
}

// ProfilerOutput configures where reports are stored and for how long.
type ProfilerOutput struct {
	// Type is where reports are stored: Node is a directory of the driver on the
	// node. Default: Node.
	Type *OutputType `json:"type,omitempty"`
	// Path is a directory in the container, with placeholders as in fileName. Required with type ContainerPath, forbidden otherwise; empty
	// stands for unset.
	Path *string `json:"path,omitempty"`
	// FileName is a template of the file name: placeholders in braces, and %{NAME} for an environment variable of the process. Only
	// letters, digits and ._- of its value are used, at most 64. %{POD_FULLNAME}, %{CONTAINER_NAME}, %{NAMESPACE} and %{NODE_NAME} are
	// {POD}, {CONTAINER}, {NAMESPACE} and {NODE}. The profiler adds its extension. Default:
	// {PROCESS_NAME}_{NAMESPACE}_{POD}_{CONTAINER}_{TIMESTAMP}_{UID}.
	FileName *string `json:"fileName,omitempty"`
	// MaxBytes limits the size of all reports of the claim. Default: 4Gi.
	MaxBytes *resource.Quantity `json:"maxBytes,omitempty"`
	// Retention is how long reports are kept on the node. Default: 72h.
	Retention *metav1.Duration `json:"retention,omitempty"`
	// Upload is the target of finished reports; it is not supported by this version of the driver. Unset: nowhere.
	Upload *Upload `json:"upload,omitempty"`
}

// Upload names an upload target that an administrator configured.
type Upload struct {
	// SecretClass is the name of the target; addresses are not allowed.
	SecretClass *string `json:"secretClass,omitempty"`
}

// Enumerations of ProfilerConfig; their values are listed below.
type (
	// ProfilerTool is the program that records.
	ProfilerTool string
	// Injection is how the profiler is injected into processes.
	Injection string
	// RegexDialect is the syntax of a pattern.
	RegexDialect string
	// MatchTarget is the text that patterns are matched against.
	MatchTarget string
	// ProfilerMode is the mode of the profiler.
	ProfilerMode string
	// ProfilerStart is the event that starts a recording.
	ProfilerStart string
	// ProfilerArm is when processes match.
	ProfilerArm string
	// CaptureRange limits the recorded ranges of a process.
	CaptureRange string
	// Trace is an API to trace, by the profiler's name for it.
	Trace string
	// CUDAGraph is the granularity of CUDA graph tracing.
	CUDAGraph string
	// CPUSampling selects the samples of the CPU.
	CPUSampling string
	// Backtrace is the method to unwind call stacks.
	Backtrace string
	// OutputType is where reports are stored.
	OutputType string
	// FailurePolicy selects the behavior if the profiler cannot start.
	FailurePolicy string
)

// The values of the enumerations.
const (
	ToolNsightSystems ProfilerTool = "NsightSystems"
	ToolNsightCompute ProfilerTool = "NsightCompute"

	InjectionPreload Injection = "Preload"
	InjectionNRI     Injection = "NRI"
	InjectionNone    Injection = "None"

	DialectPerl RegexDialect = "Perl"
	DialectRE2  RegexDialect = "RE2"

	TargetCommandLine MatchTarget = "CommandLine"
	TargetExecutable  MatchTarget = "Executable"
	TargetArgv0       MatchTarget = "Argv0"

	ModeProfile ProfilerMode = "Profile"
	ModeLaunch  ProfilerMode = "Launch"

	StartImmediate       ProfilerStart = "Immediate"
	StartManual          ProfilerStart = "Manual"
	StartCUDAProfilerAPI ProfilerStart = "CUDAProfilerAPI"
	StartNVTX            ProfilerStart = "NVTX"

	ArmAlways   ProfilerArm = "Always"
	ArmOnDemand ProfilerArm = "OnDemand"

	CaptureRangeFirst  CaptureRange = "First"
	CaptureRangeRepeat CaptureRange = "Repeat"

	TraceCUDA         Trace = "cuda"
	TraceSoftwareCUDA Trace = "cuda-sw"
	TraceNVTX         Trace = "nvtx"

	CUDAGraphGraph CUDAGraph = "Graph"
	CUDAGraphNode  CUDAGraph = "Node"

	CPUSamplingNone        CPUSampling = "None"
	CPUSamplingProcessTree CPUSampling = "ProcessTree"

	BacktraceNone         Backtrace = "None"
	BacktraceLBR          Backtrace = "LBR"
	BacktraceFramePointer Backtrace = "FramePointer"
	BacktraceDWARF        Backtrace = "DWARF"

	OutputNode          OutputType = "Node"
	OutputContainerPath OutputType = "ContainerPath"

	FailOpen   FailurePolicy = "FailOpen"
	FailClosed FailurePolicy = "FailClosed"
)

// DefaultFileName is the default of ProfilerOutput.FileName.
const DefaultFileName = "{PROCESS_NAME}_{NAMESPACE}_{POD}_{CONTAINER}_{TIMESTAMP}_{UID}"

// FileNamePlaceholders are the names that are allowed in braces in a template of a file name.
var FileNamePlaceholders = []string{
	"PROCESS_NAME", "PROCESS_ID", "NAMESPACE", "POD", "CONTAINER", "NODE", "CLAIM", "GPU_UUID", "RANK", "TIMESTAMP", "UID",
}

// MaxSessions is the maximum number of processes of a container that are profiled at once.
const MaxSessions = 16

// MaxRanges is the maximum number of recorded ranges of a process: each is a report.
const MaxRanges = 16

// Default fills unset fields, in place. ToolVersion, Duration, NVTXRange and the settings of CPU samples have no defaults.
func (c *ProfilerConfig) Default() {
	c.APIVersion, c.TypeMeta.Kind = APIVersion, KindProfilerConfig
	fill(&c.Enabled, true)
	fill(&c.Tool, ToolNsightSystems)
	fill(&c.Injection, InjectionPreload)
	fill(&c.Match, ProcessMatch{})
	c.Match.fill()
	fill(&c.Mode, ModeProfile)
	fill(&c.Start, StartImmediate)
	fill(&c.Arm, ArmAlways)
	fill(&c.CaptureRange, CaptureRangeFirst)
	unsetZero(&c.MaxRanges)
	unsetZero(&c.Duration)
	if *c.CaptureRange == CaptureRangeRepeat {
		fill(&c.MaxRanges, MaxRanges)
	}
	fill(&c.Delay, metav1.Duration{})
	if c.Trace == nil {
		c.Trace = []Trace{TraceCUDA, TraceNVTX}
	}
	fill(&c.CUDAGraph, CUDAGraphGraph)
	fill(&c.CPUSampling, CPUSamplingNone)
	fill(&c.PythonSampling, false)
	fill(&c.CaptureEnvironment, false)
	fill(&c.CaptureOutput, false)
	fill(&c.Output, ProfilerOutput{})
	c.Output.fill()
	fill(&c.FailurePolicy, FailOpen)
	fill(&c.ClaimOverride, ClaimOverrideAllowed)
}

// Manual reports whether processes wait until a command records them.
func (c *ProfilerConfig) Manual() bool {
	return c.Start != nil && *c.Start == StartManual || c.Mode != nil && *c.Mode == ModeLaunch
}

// unsetZero unsets fields that MergeProfiler reset.
func unsetZero[T comparable](field **T) {
	if *field != nil && **field == *new(T) {
		*field = nil
	}
}

func (m *ProcessMatch) fill() {
	fill(&m.Regex, "")
	fill(&m.Dialect, DialectPerl)
	fill(&m.Target, TargetCommandLine)
	fill(&m.UseDefaultExcludes, true)
	fill(&m.IncludeExecSessions, false)
	sessions := int32(1)
	if *m.Regex != "" {
		sessions = MaxSessions
	}
	fill(&m.MaxSessions, sessions)
}

func (o *ProfilerOutput) fill() {
	fill(&o.Type, OutputNode)
	fill(&o.FileName, DefaultFileName)
	if !isUnset(o.Path) {
		o.Path = new(path.Clean(*o.Path))
	}
	fill(&o.MaxBytes, resource.MustParse("4Gi"))
	fill(&o.Retention, metav1.Duration{Duration: 72 * hour})
}
