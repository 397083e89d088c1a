// Package conditions says in the conditions of a claim's devices how far the profile of the claim is. It is pure.
package conditions

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// The types of conditions.
const (
	ProfilerReady   = "ProfilerReady"
	Profiling       = "Profiling"
	ReportAvailable = "ReportAvailable"
)

// Reasons of conditions that are no reasons of reports.
const (
	reasonEnded    = "Ended"
	reasonNoReport = "NoReport"
)

// Condition is one of a device.
type Condition struct {
	Type   string
	True   bool
	Reason string
	// Message is one sentence.
	Message string
}

// State is what is known of a claim that is profiled.
type State struct {
	// Claim is the name of the ResourceClaim.
	Claim  string
	Config *v1alpha1.ProfilerConfig
	// Reports are those of the claim.
	Reports []report.Report
	// Stopped: the store is full, and recording was stopped.
	Stopped bool
}

// Of returns the conditions of the claim's profiled devices.
func Of(s State) []Condition {
	return []Condition{s.ready(), s.profiling(), s.available()}
}

func (s State) ready() Condition {
	return Condition{
		Type: ProfilerReady, True: true, Reason: report.ReasonConfigured,
		Message: fmt.Sprintf("Nsight Systems %s record %s.", version(s.Config), s.selected()),
	}
}

func version(c *v1alpha1.ProfilerConfig) string {
	if c.ToolVersion == nil {
		return ""
	}
	return *c.ToolVersion
}

// selected says which processes are recorded.
func (s State) selected() string {
	m := s.Config.Match
	if m == nil || m.Regex == nil || *m.Regex == "" {
		return "the first process of each container that is not excluded"
	}
	return "processes that match " + short(*m.Regex)
}

// maxText bounds what a message has of a container or a pattern, in bytes.
const maxText = 200

func short(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// unrecorded are reasons for which a process runs without the profiler, and what follows.
var unrecorded = map[string]string{
	report.ReasonFellBackUnprofiled: "runs without the profiler, which did not start",
	report.ReasonSlotsTaken:         "runs without the profiler: match.maxSessions processes of the container are recorded already",
	report.ReasonSeveralProfiles:    "is not profiled by this claim: another claim of the container has a profile too, and one wins",
	report.ReasonPreloadNotPossible: "is not profiled: its /etc/ld.so.preload could not be replaced, for example because a volume is mounted at /etc",
	report.ReasonStaticOrMusl:       "is a static program or one of musl, which load no library of the profiler",
	report.ReasonToolNotInstalled:   "runs without the profiler, which is not in the container",
	reasonStopped:                   "runs without the profiler: recording was stopped for the claim",
}

// reasonStopped is what a session says that began after the store was full.
const reasonStopped = "Stopped"

func (s State) profiling() Condition {
	c := Condition{Type: Profiling}
	live := s.with(func(r report.Report) bool { return r.State == report.Recording && unrecorded[r.Reason] == "" })
	recording := slices.DeleteFunc(slices.Clone(live), func(r report.Report) bool { return r.Reason == report.ReasonRangeNotReached })
	latest, some := s.latest(func(report.Report) bool { return true })
	switch {
	case s.Stopped:
		c.Reason, c.Message = report.ReasonStoreFull, s.full()
	case len(recording) > 0:
		c.True, c.Reason, c.Message = true, "Recording", fmt.Sprintf("%s recorded: %s.", processes(len(recording)), named(recording))
	case len(live) > 0:
		c.Reason = report.ReasonRangeNotReached
		c.Message = fmt.Sprintf("%s for %s before the recording begins: %s.", waiting(len(live)), s.start(), named(live))
	case !some:
		c.Reason = report.ReasonNoProcessMatched
		c.Message = fmt.Sprintf("No process was recorded yet; the profile records %s.", s.selected())
	case unrecorded[latest.Reason] != "":
		c.Reason = latest.Reason
		if c.Reason == reasonStopped {
			c.Reason = report.ReasonStoreFull
		}
		c.Message = fmt.Sprintf("%s %s.", process(latest), unrecorded[latest.Reason])
	case latest.Reason == report.ReasonRangeNotReached:
		c.Reason = report.ReasonRangeNotReached
		c.Message = fmt.Sprintf("%s exited and did not reach %s.", process(latest), s.start())
	default:
		c.Reason, c.Message = reasonEnded, fmt.Sprintf("No process is recorded now; the last one was %s.", process(latest))
	}
	return c
}

// full says how the claim is recorded again.
func (s State) full() string {
	limit := "the limit"
	if s.Config.Output != nil && s.Config.Output.MaxBytes != nil {
		limit = "output.maxBytes, " + s.Config.Output.MaxBytes.String() + ","
	}
	return fmt.Sprintf("Recording was stopped: the reports of the claim take %s or those of the node take what the node has for them; "+
		"delete reports with kubectl prism profile rm --claim %s.", limit, s.Claim)
}

// start is what begins the recording.
func (s State) start() string {
	if s.Config.Start != nil && *s.Config.Start == v1alpha1.StartNVTX && s.Config.NVTXRange != nil {
		return "the NVTX range " + short(*s.Config.NVTXRange)
	}
	return "cudaProfilerStart"
}

func (s State) available() Condition {
	c := Condition{Type: ReportAvailable}
	count := func(state report.State) int {
		return len(s.with(func(r report.Report) bool { return r.State == state }))
	}
	ready, raw, importing, recording := count(report.Ready), count(report.Raw), count(report.Importing), count(report.Recording)
	download := "kubectl prism profile download --claim " + s.Claim
	latest, lost := s.latest(func(r report.Report) bool { return r.State == report.Lost })
	switch {
	case ready > 0:
		c.True, c.Reason, c.Message = true, string(report.Ready), fmt.Sprintf("%s can be downloaded: %s.", counted(ready+raw), download)
	case raw > 0:
		c.True, c.Reason = true, string(report.Raw)
		c.Message = fmt.Sprintf("%s can be downloaded raw, which could not be imported on the node: %s.", counted(raw), download)
	case importing > 0:
		c.Reason, c.Message = string(report.Importing), fmt.Sprintf("%s imported.", being(importing))
	case recording > 0:
		c.Reason, c.Message = string(report.Recording), "Reports are stored when the processes exit, or recording ends."
	case lost && unrecorded[latest.Reason] == "":
		c.Reason = report.ReasonReportLost
		c.Message = fmt.Sprintf("The recording of %s ended without a report that can be read (%s).", process(latest), latest.Reason)
	default:
		c.Reason, c.Message = reasonNoReport, "The claim has no report."
	}
	return c
}

func (s State) with(is func(report.Report) bool) (all []report.Report) {
	for _, r := range s.Reports {
		if is(r) {
			all = append(all, r)
		}
	}
	return all
}

// latest is the one whose process began last.
func (s State) latest(is func(report.Report) bool) (report.Report, bool) {
	all := s.with(is)
	if len(all) == 0 {
		return report.Report{}, false
	}
	return slices.MaxFunc(all, func(a, b report.Report) int { return a.Started.Compare(b.Started) }), true
}

// process names a process by its program and its container.
func process(r report.Report) string {
	name := "Process " + short(r.Process)
	if r.Process == "" {
		name = "A process"
	}
	if r.Container == "" {
		return name
	}
	return fmt.Sprintf("%s of container %s of pod %s", name, short(r.Container), short(r.Pod))
}

// maxNamed is how many processes a message names.
const maxNamed = 3

func named(reports []report.Report) string {
	var names []string
	for _, r := range reports[:min(len(reports), maxNamed)] {
		names = append(names, strings.TrimPrefix(process(r), "Process "))
	}
	if more := len(reports) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d others", more))
	}
	return strings.Join(names, ", ")
}

func processes(n int) string {
	if n == 1 {
		return "1 process is"
	}
	return fmt.Sprintf("%d processes are", n)
}

func waiting(n int) string {
	if n == 1 {
		return "1 process waits"
	}
	return fmt.Sprintf("%d processes wait", n)
}

func counted(n int) string {
	if n == 1 {
		return "1 report"
	}
	return fmt.Sprintf("%d reports", n)
}

func being(n int) string {
	if n == 1 {
		return "1 report is being"
	}
	return fmt.Sprintf("%d reports are being", n)
}
