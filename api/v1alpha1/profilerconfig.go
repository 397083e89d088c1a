package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProfilerConfig says which processes in the containers of a claim are
// profiled, how, and what becomes of the reports. Nothing in it names a path,
// an environment variable or a program of the host.
type ProfilerConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Tool defaults to NsightSystems.
	Tool *ProfilerTool `json:"tool,omitempty"`
	// ToolVersion is a version installed on the node, as 2025.5.1. Unset: the
	// node's own choice.
	ToolVersion *string `json:"toolVersion,omitempty"`
	// Injection is how the profiler gets into the processes. Default: Preload.
	Injection *Injection `json:"injection,omitempty"`
	// Containers are globs of container names. Empty: all that use the claim.
	Containers []string `json:"containers,omitempty"`
	// Match chooses processes in these containers. Unset: the first process
	// that is not excluded.
	Match *ProcessMatch `json:"match,omitempty"`

	// Mode defaults to Profile.
	Mode *ProfilerMode `json:"mode,omitempty"`
	// Start is what begins the recording. Default: Immediate.
	Start *ProfilerStart `json:"start,omitempty"`
	// NVTXRange is the range that begins the recording, as range@domain; given
	// exactly when Start is NVTX.
	NVTXRange *string `json:"nvtxRange,omitempty"`
	// Delay before the recording begins, 0s to 24h. Default: 0s.
	Delay *metav1.Duration `json:"delay,omitempty"`
	// Duration of the recording, up to 24h. Unset: until the process ends.
	Duration *metav1.Duration `json:"duration,omitempty"`
	// OnDurationEnd is what becomes of the process then. Default: KeepRunning.
	OnDurationEnd *OnDurationEnd `json:"onDurationEnd,omitempty"`

	// Trace are the programming interfaces recorded. Default: cuda, nvtx.
	Trace []Trace `json:"trace,omitempty"`
	// CUDAGraph is how CUDA graphs are recorded. Default: Graph.
	CUDAGraph *CUDAGraph `json:"cudaGraph,omitempty"`
	// CPUSampling needs perf events on the node. Default: None.
	CPUSampling *CPUSampling `json:"cpuSampling,omitempty"`
	// PythonSampling records Python call stacks. Default: false.
	PythonSampling *bool `json:"pythonSampling,omitempty"`
	// CaptureEnvironment stores the environment of the process in the report.
	// Default: false, since it often has secrets.
	CaptureEnvironment *bool `json:"captureEnvironment,omitempty"`
	// CaptureOutput stores what the process prints in the report. Default: false.
	CaptureOutput *bool `json:"captureOutput,omitempty"`
	// Args are further switches of the profiler, each --name or --name=value.
	// The cluster's policy must allow them.
	Args []string `json:"args,omitempty"`

	// Output is where reports go. Unset: the node's store.
	Output *ProfilerOutput `json:"output,omitempty"`
	// FailurePolicy is what happens when the profiler cannot work. Default:
	// FailOpen.
	FailurePolicy *FailurePolicy `json:"failurePolicy,omitempty"`
}

// ProcessMatch chooses the processes to profile.
type ProcessMatch struct {
	// Regex matches Target, at most 1024 bytes, without back-references.
	// Empty: the first process that is not excluded.
	Regex *string `json:"regex,omitempty"`
	// Dialect of Regex and Exclude. Default: Perl, which has lookaheads.
	Dialect *RegexDialect `json:"dialect,omitempty"`
	// Exclude are patterns of processes never profiled, at most 16.
	Exclude []string `json:"exclude,omitempty"`
	// Target is what the patterns see. Default: CommandLine.
	Target *MatchTarget `json:"target,omitempty"`
	// UseDefaultExcludes keeps shells and small tools out. Default: true.
	UseDefaultExcludes *bool `json:"useDefaultExcludes,omitempty"`
	// IncludeExecSessions profiles what kubectl exec starts, too. Default: false.
	IncludeExecSessions *bool `json:"includeExecSessions,omitempty"`
	// MaxSessions is how many processes of a container are profiled at once,
	// 1 to 16. Default: 1.
	MaxSessions *int32 `json:"maxSessions,omitempty"`
}

// ProfilerOutput is where reports go and how long they stay.
type ProfilerOutput struct {
	// Type defaults to Node, the store that the driver keeps on the node.
	Type *OutputType `json:"type,omitempty"`
	// Path is a directory in the container; given exactly when Type is
	// ContainerPath.
	Path *string `json:"path,omitempty"`
	// FileName is a template; {NAME} is replaced for the names in
	// FileNamePlaceholders. Default: DefaultFileName.
	FileName *string `json:"fileName,omitempty"`
	// MaxBytes is the most that the reports of the claim may take. Default: 4Gi.
	MaxBytes *resource.Quantity `json:"maxBytes,omitempty"`
	// Retention is how long reports stay in the node's store. Default: 72h.
	Retention *metav1.Duration `json:"retention,omitempty"`
	// Upload sends finished reports elsewhere.
	Upload *Upload `json:"upload,omitempty"`
}

// Upload names a target that an administrator has defined.
type Upload struct {
	// SecretClass is the name of the target, never an address.
	SecretClass *string `json:"secretClass,omitempty"`
}

// Enumerations of ProfilerConfig; their values are listed below.
type (
	// ProfilerTool is the program that records.
	ProfilerTool string
	// Injection is how the profiler gets into processes.
	Injection string
	// RegexDialect is the language of a pattern.
	RegexDialect string
	// MatchTarget is what patterns are compared with.
	MatchTarget string
	// ProfilerMode is what the profiler is told to do with a process.
	ProfilerMode string
	// ProfilerStart is what begins a recording.
	ProfilerStart string
	// OnDurationEnd is what becomes of the process after the recording.
	OnDurationEnd string
	// Trace is a programming interface to record, spelt as the tool spells it.
	Trace string
	// CUDAGraph is the grain in which CUDA graphs are recorded.
	CUDAGraph string
	// CPUSampling is what is sampled on the CPU.
	CPUSampling string
	// OutputType is the kind of place for reports.
	OutputType string
	// FailurePolicy is what happens when the profiler cannot work.
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

	OnDurationEndKeepRunning OnDurationEnd = "KeepRunning"
	OnDurationEndTerminate   OnDurationEnd = "Terminate"

	TraceCUDA Trace = "cuda"
	TraceNVTX Trace = "nvtx"

	CUDAGraphGraph CUDAGraph = "Graph"
	CUDAGraphNode  CUDAGraph = "Node"

	CPUSamplingNone        CPUSampling = "None"
	CPUSamplingProcessTree CPUSampling = "ProcessTree"

	OutputNode          OutputType = "Node"
	OutputContainerPath OutputType = "ContainerPath"

	FailOpen   FailurePolicy = "FailOpen"
	FailClosed FailurePolicy = "FailClosed"
)

// DefaultFileName is the default of ProfilerOutput.FileName.
const DefaultFileName = "{PROCESS_NAME}_{NAMESPACE}_{POD}_{CONTAINER}_{TIMESTAMP}_{UID}"

// FileNamePlaceholders are the names that a file name template may have in
// braces.
var FileNamePlaceholders = []string{
	"PROCESS_NAME", "PROCESS_ID", "NAMESPACE", "POD", "CONTAINER", "NODE", "CLAIM", "GPU_UUID", "RANK", "TIMESTAMP", "UID",
}

// Default fills unset fields, in place. ToolVersion, Duration and NVTXRange
// have no default.
func (c *ProfilerConfig) Default() {
	c.APIVersion, c.TypeMeta.Kind = APIVersion, KindProfilerConfig
	fill(&c.Tool, ToolNsightSystems)
	fill(&c.Injection, InjectionPreload)
	fill(&c.Match, ProcessMatch{})
	c.Match.fill()
	fill(&c.Mode, ModeProfile)
	fill(&c.Start, StartImmediate)
	fill(&c.Delay, metav1.Duration{})
	fill(&c.OnDurationEnd, OnDurationEndKeepRunning)
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
}

func (m *ProcessMatch) fill() {
	fill(&m.Regex, "")
	fill(&m.Dialect, DialectPerl)
	fill(&m.Target, TargetCommandLine)
	fill(&m.UseDefaultExcludes, true)
	fill(&m.IncludeExecSessions, false)
	fill(&m.MaxSessions, 1)
}

func (o *ProfilerOutput) fill() {
	fill(&o.Type, OutputNode)
	fill(&o.FileName, DefaultFileName)
	fill(&o.MaxBytes, resource.MustParse("4Gi"))
	fill(&o.Retention, metav1.Duration{Duration: 72 * hour})
}
