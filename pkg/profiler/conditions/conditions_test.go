package conditions

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// said are the conditions as text, without their types' common order.
func said(s State) (all []string) {
	for _, c := range Of(s) {
		all = append(all, fmt.Sprintf("%s=%t %s: %s", c.Type, c.True, c.Reason, c.Message))
	}
	return all
}

func config(change func(c *v1alpha1.ProfilerConfig)) *v1alpha1.ProfilerConfig {
	c := &v1alpha1.ProfilerConfig{ToolVersion: new("2025.5.1")}
	if change != nil {
		change(c)
	}
	c.Default()
	return c
}

func of(state report.State, reason string) report.Report {
	return report.Report{Pod: "train", Container: "main", Process: "python3", State: state, Reason: reason, Started: time.Unix(1, 0)}
}

const (
	where   = "python3 of container main of pod train"
	pending = "ReportAvailable=false Recording: Reports are stored when the processes exit, or recording ends."
	none    = "ReportAvailable=false NoReport: The claim has no report."
	ended   = "Profiling=false Ended: No process is recorded now; the last one was " + where + "."
	remedy  = "delete reports with kubectl prism profile rm --claim c, or raise the limit."
	full    = "Profiling=false StoreFull: Recording was stopped, as the reports of the claim take output.maxBytes (4Gi) or those of the node take " +
		"its limit (profiler.reports.maxBytes of the chart); " + remedy
	severalEnded = "Profiling=false SeveralProfiles: No process is recorded now; the last one was " + where + ", for this claim and not for another one of " +
		"the container with a ProfilerConfig; keep one."
	killed = "ReportAvailable=false ReportLost: The recording of " + where + " ended without a report that can be read, as when the container or the " +
		"profiler is killed; let the process exit by itself, or set duration."
)

func nvtx(c *v1alpha1.ProfilerConfig) {
	c.Start, c.NVTXRange = new(v1alpha1.StartNVTX), new("step@train")
}

// states is the table of what a claim can say. A process that ran without the profiler says the same while it runs and after that.
var states = map[string]struct {
	change               func(c *v1alpha1.ProfilerConfig)
	reports              []report.Report
	stopped              bool
	profiling, available string
}{
	"nothing yet": {
		profiling: "Profiling=false NoProcessMatched: No process was recorded yet; the profile records the first process of each container that is not " +
			"excluded: compare kubectl prism profile check POD.",
		available: none,
	},
	"recording": {
		reports: []report.Report{of(report.Recording, "")}, profiling: "Profiling=true Recording: 1 process is recorded: " + where + ".", available: pending,
	},
	"two profiles": {
		reports: []report.Report{of(report.Recording, "SeveralProfiles")}, available: pending,
		profiling: "Profiling=true SeveralProfiles: 1 process is recorded for this claim, and not for another one of container main with a " +
			"ProfilerConfig; keep one: " + where + ".",
	},
	"two profiles, ended": {
		reports: []report.Report{of(report.Ready, "SeveralProfiles")}, profiling: severalEnded,
		available: "ReportAvailable=true Ready: 1 report can be downloaded: kubectl prism profile download --claim c.",
	},
	"waits for a range": {
		change: nvtx, reports: []report.Report{of(report.Recording, "RangeNotReached")}, available: pending,
		profiling: "Profiling=false RangeNotReached: 1 process waits for the NVTX range step@train, with which the recording begins: " + where + ".",
	},
	"never reached the range": {
		change: func(c *v1alpha1.ProfilerConfig) { c.Start = new(v1alpha1.StartCUDAProfilerAPI) }, reports: []report.Report{of(report.Lost, "RangeNotReached")},
		profiling: "Profiling=false RangeNotReached: Process " + where + " exited and did not reach cudaProfilerStart; have it do so, or set start: Immediate.",
		available: "ReportAvailable=false RangeNotReached: Process " + where + " exited and did not reach cudaProfilerStart; have it do so, or set start: Immediate.",
	},
	"killed in a range":        {change: nvtx, reports: []report.Report{of(report.Lost, "ReportLost")}, profiling: ended, available: killed},
	"killed with two profiles": {reports: []report.Report{of(report.Lost, "SeveralProfiles")}, profiling: severalEnded, available: killed},
	"another profile won": {
		reports: []report.Report{of(report.Lost, "OtherProfileWon")}, available: none,
		profiling: "Profiling=false SeveralProfiles: Process " + where + " is not recorded for this claim, but for another one of the container with a " +
			"ProfilerConfig, where that selects it; keep one.",
	},
	"killed silently": {reports: []report.Report{of(report.Lost, "")}, profiling: ended, available: killed},
	"lost otherwise": {
		reports: []report.Report{of(report.Lost, "SessionRemoved")}, profiling: ended,
		available: "ReportAvailable=false ReportLost: The recording of " + where + " ended without a report that can be read (SessionRemoved).",
	},
	"too large": {
		reports: []report.Report{of(report.Lost, "StoreFull")}, profiling: ended,
		available: "ReportAvailable=false StoreFull: The report of " + where + " is larger than what the claim or the node has left for reports; " + remedy,
	},
	"importing": {
		reports: []report.Report{of(report.Importing, "")}, profiling: ended, available: "ReportAvailable=false Importing: 1 report is being imported.",
	},
	"ready": {
		reports: []report.Report{of(report.Ready, ""), of(report.Raw, "ImportFailed"), of(report.Lost, "ReportLost")}, profiling: ended,
		available: "ReportAvailable=true Ready: 2 reports can be downloaded: kubectl prism profile download --claim c.",
	},
	"raw": {
		reports: []report.Report{of(report.Raw, "ImportFailed")}, profiling: ended,
		available: "ReportAvailable=true Raw: 1 report can be downloaded raw, which could not be imported on the node: kubectl prism profile download --claim c.",
	},
	"fell back, runs": {
		reports: []report.Report{of(report.Recording, "FellBackUnprofiled")}, available: none,
		profiling: "Profiling=false FellBackUnprofiled: Process " + where + " ran without the profiler, which did not start; it needs libgcc_s.so.1 in the " +
			"image, /dev/shm and some hundred MiB of memory.",
	},
	"slots taken": {
		change: func(c *v1alpha1.ProfilerConfig) { c.Match = &v1alpha1.ProcessMatch{MaxSessions: new(int32(1))} }, available: none,
		reports:   []report.Report{of(report.Lost, "SlotsTaken")},
		profiling: "Profiling=false SlotsTaken: Process " + where + " ran without the profiler, as the container had match.maxSessions (1) recorded processes; raise it to record more.",
	},
	"sanitizer": {
		reports: []report.Report{of(report.Lost, "SanitizerNotSupported")}, available: none,
		profiling: "Profiling=false SanitizerNotSupported: Process " + where + " ran without the profiler, as it has the runtime of a sanitizer, " +
			"beside which nsys cannot work; profile a build without it.",
	},
	"no tool": {
		reports: []report.Report{of(report.Lost, "ToolNotInstalled")}, available: none,
		profiling: "Profiling=false ToolNotInstalled: Process " + where + " ran without the profiler, which is not in the container any more; create the pod again.",
	},
	"volume at /etc": {
		reports: []report.Report{of(report.Lost, "PreloadNotPossible")}, available: none,
		profiling: "Profiling=false PreloadNotPossible: Process " + where + " is not recorded, as /etc/ld.so.preload could not be replaced; take away the " +
			"volume at /etc, or give it a file of that name.",
	},
	"static": {
		reports: []report.Report{of(report.Lost, "StaticOrMusl")}, available: none,
		profiling: "Profiling=false StaticOrMusl: Process " + where + " is static or uses musl, and loads no library of the profiler; link it dynamically " +
			"and use an image with glibc.",
	},
	"full":                {reports: []report.Report{of(report.Lost, "Stopped")}, stopped: true, profiling: full, available: none},
	"full while it is so": {reports: []report.Report{of(report.Recording, "")}, stopped: true, profiling: full, available: pending},
	"was full": {
		reports: []report.Report{of(report.Lost, "Stopped")}, available: none,
		profiling: "Profiling=false StoreFull: Process " + where + " ran without the profiler, as the reports of the claim or of the node took all the bytes they may; " + remedy,
	},
}

// TestOf_States_EachReason: a claim says of each state what happened, to which process, and what to change.
func TestOf_States_EachReason(t *testing.T) {
	t.Parallel()
	for name, c := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := said(State{Claim: "c", Config: config(c.change), Reports: c.reports, Stopped: c.stopped})
			assert.Equal(t, []string{
				"ProfilerReady=true Configured: Nsight Systems 2025.5.1 records the first process of each container that is not excluded.", c.profiling, c.available,
			}, got)
		})
	}
}

// TestOf_ProcessWithoutNames_OneSentence: of a process that says nothing of itself the claim says so.
func TestOf_ProcessWithoutNames_OneSentence(t *testing.T) {
	t.Parallel()
	c := Of(State{Claim: "c", Config: config(nil), Reports: []report.Report{{State: report.Lost, Reason: "ToolNotInstalled"}}})[1]
	assert.True(t, strings.HasPrefix(c.Message, "A process ran without the profiler, "), c.Message)
}

// TestOf_SeveralSessions_RecordingWins: what is recorded now says more than what was not.
func TestOf_SeveralSessions_RecordingWins(t *testing.T) {
	t.Parallel()
	var all []report.Report
	for range 5 {
		all = append(all, of(report.Recording, ""))
	}
	all = append(all, of(report.Lost, "SlotsTaken"))
	c := Of(State{Claim: "c", Config: config(nil), Reports: all})[1]
	assert.True(t, c.True)
	assert.True(t, strings.HasPrefix(c.Message, "5 processes are recorded: python3 of container main of pod train, "), c.Message)
	assert.True(t, strings.HasSuffix(c.Message, ", 2 others."), c.Message)
}

// TestOf_HostileTexts_EscapedAndBounded: a condition's message is one printable line of at most 1 KiB, whatever a container or a pattern is
// called.
func TestOf_HostileTexts_EscapedAndBounded(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{"ü", "\n", "\x1b[31m", "\xff", "\u202e", "a"} {
		long := strings.Repeat(piece, 5000)
		c := config(func(c *v1alpha1.ProfilerConfig) {
			c.Match, c.Start, c.NVTXRange = &v1alpha1.ProcessMatch{Regex: &long}, new(v1alpha1.StartNVTX), &long
		})
		for _, state := range []report.State{report.Recording, report.Lost, report.Ready} {
			for _, reason := range []string{"", "RangeNotReached", "SeveralProfiles", "FellBackUnprofiled", "StoreFull"} {
				r := report.Report{Pod: long, Container: long, Process: long, State: state, Reason: reason}
				for _, condition := range Of(State{Claim: strings.Repeat("c", 253), Config: c, Reports: []report.Report{r, r, r, r}}) {
					assert.LessOrEqual(t, len(condition.Message), 1024, condition.Type)
					assert.True(t, utf8.ValidString(condition.Message), condition.Message)
					assert.Equal(t, -1, strings.IndexFunc(condition.Message, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", condition.Message)
				}
			}
		}
	}
}
