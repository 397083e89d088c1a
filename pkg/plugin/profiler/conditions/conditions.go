// Package conditions reports the progress of a claim's profile in the conditions of its devices. It is pure.
package conditions

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// The types of conditions.
const (
	ProfilerReady   = "ProfilerReady"
	Profiling       = "Profiling"
	ReportAvailable = "ReportAvailable"
)

// Reasons of conditions that reports do not use.
const (
	reasonRecording = string(report.Recording)
	reasonEnded     = "Ended"
	reasonNoReport  = "NoReport"
	// reasonNotStarted: recordings start with a command, and there was none.
	reasonNotStarted = "NotStarted"
)

// Condition is a condition of a device.
type Condition struct {
	Type   string
	True   bool
	Reason string
	// Message is one sentence.
	Message string
}

// State describes a profiled claim.
type State struct {
	// Claim is the name of the ResourceClaim.
	Claim  string
	Config *v1alpha1.ProfilerConfig
	// Reports are the reports of the claim.
	Reports []report.Report
	// Stopped: the store is full, and recording was stopped.
	Stopped bool
	// ToolMissing: the version is no longer installed, and containers start unprofiled.
	ToolMissing bool
}

// maxMessage limits a message, in bytes.
const maxMessage = 1024

// Of returns the conditions of the claim's profiled devices. Messages are at most 1 KiB long and printable.
func Of(s State) []Condition {
	all := []Condition{s.ready(), s.profiling(), s.available()}
	for i := range all {
		all[i].Message = cut(all[i].Message, maxMessage)
	}
	return all
}

func (s State) ready() Condition {
	if s.ToolMissing {
		return Condition{
			Type: ProfilerReady, Reason: report.ReasonToolNotInstalled,
			Message: fmt.Sprintf("Nsight Systems %s is no longer installed on the node; containers start unprofiled.", version(s.Config)),
		}
	}
	return Condition{
		Type: ProfilerReady, True: true, Reason: report.ReasonConfigured,
		Message: fmt.Sprintf("Nsight Systems %s records %s.", version(s.Config), s.selected()),
	}
}

func version(c *v1alpha1.ProfilerConfig) string {
	if c.ToolVersion == nil {
		return ""
	}
	return *c.ToolVersion
}

// selected describes the recorded processes.
func (s State) selected() string {
	m := s.Config.Match
	if m == nil || m.Regex == nil || *m.Regex == "" {
		return "the first process of each container that is not excluded"
	}
	return "processes that match " + cut(printable(*m.Regex), maxPattern)
}

// maxText limits the texts of a container in a message, in bytes, maxPattern the texts of a configuration.
const (
	maxText    = 80
	maxPattern = 200
)

// short returns a text of a container, printable and bounded.
func short(text string) string { return cut(printable(text), maxText) }

// printable replaces unprintable characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, text)
}

// mark ends a truncated text.
const mark = "…"

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}

// reasonStopped is the reason of a session that began after the store was full.
const reasonStopped = "Stopped"

// unrecorded explains why a process ran unprofiled, with a remedy; it is empty for other reasons.
func (s State) unrecorded(reason string) string {
	switch reason {
	case report.ReasonFellBackUnprofiled:
		return "ran unprofiled because the profiler did not start; it requires libgcc_s.so.1 in the image, /dev/shm and several hundred MiB of memory"
	case report.ReasonSlotsTaken:
		return fmt.Sprintf("ran unprofiled because match.maxSessions%s processes of the container were already recorded; raise it to record more", s.sessions())
	case report.ReasonPreloadNotPossible:
		return "is not recorded because /etc/ld.so.preload could not be replaced; remove the volume at /etc, or add a file of that name to it"
	case report.ReasonStaticOrMusl:
		return "is statically linked or uses musl, and does not load the profiler's library; link it dynamically and use an image with glibc"
	case report.ReasonSanitizerNotSupported:
		return "ran unprofiled because it uses a sanitizer, which nsys does not support; profile a build without it"
	case report.ReasonToolNotInstalled:
		return "ran unprofiled because the container no longer contains the profiler; create the pod again"
	case report.ReasonOtherProfileWon:
		return "is not recorded for this claim, but for another claim of the container if the ProfilerConfig of that claim selects it; keep one ProfilerConfig per container"
	case reasonStopped:
		return "ran unprofiled because the reports of the claim or of the node reached their size limit; " + s.remedy()
	}
	return ""
}

// sessions returns the maximum number of recorded processes of a container.
func (s State) sessions() string {
	if s.Config.Match == nil || s.Config.Match.MaxSessions == nil {
		return ""
	}
	return fmt.Sprintf(" (%d)", *s.Config.Match.MaxSessions)
}

func (s State) profiling() Condition {
	c := Condition{Type: Profiling}
	live := s.with(s.live)
	recording := slices.DeleteFunc(slices.Clone(live), func(r report.Report) bool { return r.Reason == report.ReasonRangeNotReached })
	latest, some := s.latest(func(report.Report) bool { return true })
	switch {
	case s.Stopped:
		c.Reason, c.Message = report.ReasonStoreFull, s.full()
	case len(recording) > 0:
		c.True, c.Reason, c.Message = true, reasonRecording, fmt.Sprintf("%s recorded: %s.", processes(len(recording)), named(recording))
		if one := slices.IndexFunc(recording, func(r report.Report) bool { return r.Reason == report.ReasonSeveralProfiles }); one >= 0 {
			c.Reason = report.ReasonSeveralProfiles
			c.Message = fmt.Sprintf("%s recorded for this claim, and not for another claim of container %s with a ProfilerConfig; keep one: %s.",
				processes(len(recording)), short(recording[one].Container), named(recording))
		}
	case len(live) > 0:
		c.Reason = report.ReasonRangeNotReached
		c.Message = fmt.Sprintf("%s for %s, which starts the recording: %s.", waiting(len(live)), s.start(), named(live))
	case !some:
		c.Reason, c.Message = s.none()
	case s.unrecorded(latest.Reason) != "":
		c.Reason = latest.Reason
		switch c.Reason {
		case reasonStopped:
			c.Reason = report.ReasonStoreFull
		case report.ReasonOtherProfileWon:
			c.Reason = report.ReasonSeveralProfiles
		}
		c.Message = fmt.Sprintf("%s %s.", process(latest), s.unrecorded(latest.Reason))
	case latest.State == report.Lost && latest.Reason == report.ReasonRangeNotReached:
		c.Reason, c.Message = report.ReasonRangeNotReached, s.missed(latest)
	case latest.Reason == report.ReasonSeveralProfiles:
		c.Reason = latest.Reason
		c.Message = fmt.Sprintf("No process is recorded now; the last one was %s, for this claim and not for another claim of the container with a "+
			"ProfilerConfig; keep one.", about(latest))
	default:
		c.Reason, c.Message = reasonEnded, fmt.Sprintf("No process is recorded now; the last one was %s.", about(latest))
	}
	return c
}

// none explains why there is no report.
func (s State) none() (reason, message string) {
	const begin = "No process was recorded yet; "
	switch {
	case s.Config.Arm != nil && *s.Config.Arm == v1alpha1.ArmOnDemand:
		return reasonNotStarted, begin + "the profile selects processes while the claim is armed with kubectl prism profile arm."
	case s.Config.Manual():
		return reasonNotStarted, begin + "kubectl prism profile sessions lists the processes that wait for kubectl prism profile start."
	}
	return report.ReasonNoProcessMatched, fmt.Sprintf("%sthe profile records %s: run kubectl prism profile check POD.", begin, s.selected())
}

// live reports whether a process is being recorded, or waits for its range.
func (s State) live(r report.Report) bool {
	return r.State == report.Recording && s.unrecorded(r.Reason) == ""
}

// full explains how recording continues.
func (s State) full() string {
	limit := "the limit"
	if s.Config.Output != nil && s.Config.Output.MaxBytes != nil {
		limit = s.Config.Output.MaxBytes.String()
	}
	return fmt.Sprintf("Recording stopped because the reports of the claim reached output.maxBytes (%s) or the reports of the node reached its limit "+
		"(profiler.reports.maxBytes of the chart); %s.", limit, s.remedy())
}

// remedy returns the remedy if reports reached their size limit.
func (s State) remedy() string {
	return fmt.Sprintf("delete reports with kubectl prism profile rm --claim %s, or raise the limit", s.Claim)
}

// missed reports that a process exited before its range.
func (s State) missed(r report.Report) string {
	return fmt.Sprintf("%s exited before it reached %s; change the program, or set start: Immediate.", process(r), s.start())
}

// start describes the start of the recording.
func (s State) start() string {
	if s.Config.Start != nil && *s.Config.Start == v1alpha1.StartNVTX && s.Config.NVTXRange != nil {
		return "the NVTX range " + cut(printable(*s.Config.NVTXRange), maxPattern)
	}
	return "cudaProfilerStart"
}

func (s State) available() Condition {
	c := Condition{Type: ReportAvailable}
	count := func(state report.State) int {
		return len(s.with(func(r report.Report) bool { return r.State == state }))
	}
	ready, raw, importing, recording := count(report.Ready), count(report.Raw), count(report.Importing), len(s.with(s.live))
	download := "kubectl prism profile download --claim " + s.Claim
	latest, lost := s.latest(func(r report.Report) bool { return r.State == report.Lost && s.unrecorded(r.Reason) == "" })
	switch {
	case ready > 0:
		c.True, c.Reason, c.Message = true, string(report.Ready), fmt.Sprintf("%s can be downloaded: %s.", counted(ready+raw), download)
	case raw > 0:
		c.True, c.Reason = true, string(report.Raw)
		c.Message = fmt.Sprintf("%s could not be imported on the node, and can be downloaded raw: %s.", counted(raw), download)
	case importing > 0:
		c.Reason, c.Message = string(report.Importing), fmt.Sprintf("%s imported.", being(importing))
	case recording > 0:
		c.Reason, c.Message = reasonRecording, "Reports are stored when the processes exit or the recording ends."
	case lost:
		c.Reason, c.Message = s.lost(latest)
	default:
		c.Reason, c.Message = reasonNoReport, "The claim has no report."
	}
	return c
}

// lost explains why a recording left no report.
func (s State) lost(r report.Report) (reason, message string) {
	switch r.Reason {
	case report.ReasonRangeNotReached:
		return r.Reason, s.missed(r)
	case report.ReasonStoreFull:
		return r.Reason, fmt.Sprintf("The report of %s exceeds the space that is left for reports of the claim or the node; %s.", about(r), s.remedy())
	case "", report.ReasonReportLost, report.ReasonSeveralProfiles:
		return report.ReasonReportLost, fmt.Sprintf("The recording of %s ended without a readable report, for example because the container or "+
			"the profiler was killed; let the process exit by itself, or set duration.", about(r))
	}
	return report.ReasonReportLost, fmt.Sprintf("The recording of %s ended without a readable report (%s).", about(r), r.Reason)
}

func (s State) with(is func(report.Report) bool) (all []report.Report) {
	for _, r := range s.Reports {
		if is(r) {
			all = append(all, r)
		}
	}
	return all
}

// latest returns the report whose process began last.
func (s State) latest(is func(report.Report) bool) (report.Report, bool) {
	all := s.with(is)
	if len(all) == 0 {
		return report.Report{}, false
	}
	return slices.MaxFunc(all, func(a, b report.Report) int { return a.Started.Compare(b.Started) }), true
}

// process names a process by its program and its container, at the start of a sentence.
func process(r report.Report) string {
	if r.Process == "" {
		return "A" + about(r)[1:]
	}
	return "Process " + about(r)
}

// about names a process within a sentence.
func about(r report.Report) string {
	name := short(r.Process)
	if name == "" {
		name = "a process"
	}
	if r.Container == "" {
		return name
	}
	return fmt.Sprintf("%s of container %s of pod %s", name, short(r.Container), short(r.Pod))
}

// maxNamed is the maximum number of processes in a message.
const maxNamed = 3

func named(reports []report.Report) string {
	var names []string
	for _, r := range reports[:min(len(reports), maxNamed)] {
		names = append(names, about(r))
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
