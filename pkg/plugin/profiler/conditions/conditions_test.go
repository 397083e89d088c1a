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

// said returns the conditions as text, without their types' common order.
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
	pending = "ReportAvailable=false Recording: Reports are stored when the processes exit or the recording ends."
	none    = "ReportAvailable=false NoReport: The claim has no report."
	ended   = "Profiling=false Ended: No process is recorded now; the last one was " + where + "."
	remedy  = "delete reports with kubectl prism profile rm --claim c, or raise the limit."
	full    = "Profiling=false StoreFull: Recording stopped because the reports of the claim reached output.maxBytes (4Gi) or the reports of the node reached " +
		"its limit (profiler.reports.maxBytes of the chart); " + remedy
	severalEnded = "Profiling=false SeveralProfiles: No process is recorded now; the last one was " + where + ", for this claim and not for another claim of " +
		"the container with a ProfilerConfig; keep one."
	killed = "ReportAvailable=false ReportLost: The recording of " + where + " ended without a readable report, for example because the container or the " +
		"profiler was killed; let the process exit by itself, or set duration."
)

func nvtx(c *v1alpha1.ProfilerConfig) {
	c.Start, c.NVTXRange = new(v1alpha1.StartNVTX), new("step@train")
}

// states is the table of all conditions of a claim. The conditions of an unprofiled process are the same while it runs and afterwards.
var states = map[string]struct {
	change               func(c *v1alpha1.ProfilerConfig)
	reports              []report.Report
	stopped              bool
	profiling, available string
}{
	"nothing yet": {
		profiling: "Profiling=false NoProcessMatched: No process was recorded yet; the profile records the first process of each container that is not " +
			"excluded: run kubectl prism profile check POD.",
		available: none,
	},
	"waiting for a command": {
		change: func(c *v1alpha1.ProfilerConfig) { c.Start = new(v1alpha1.StartManual) },
		profiling: "Profiling=false NotStarted: No process was recorded yet; kubectl prism profile sessions lists the processes that wait for kubectl prism " +
			"profile start.",
		available: none,
	},
	"not armed": {
		change:    func(c *v1alpha1.ProfilerConfig) { c.Arm = new(v1alpha1.ArmOnDemand) },
		profiling: "Profiling=false NotStarted: No process was recorded yet; the profile selects processes while the claim is armed with kubectl prism profile arm.",
		available: none,
	},
	"recording": {
		reports: []report.Report{of(report.Recording, "")}, profiling: "Profiling=true Recording: 1 process is recorded: " + where + ".", available: pending,
	},
	"two profiles": {
		reports: []report.Report{of(report.Recording, "SeveralProfiles")}, available: pending,
		profiling: "Profiling=true SeveralProfiles: 1 process is recorded for this claim, and not for another claim of container main with a " +
			"ProfilerConfig; keep one: " + where + ".",
	},
	"two profiles, ended": {
		reports: []report.Report{of(report.Ready, "SeveralProfiles")}, profiling: severalEnded,
		available: "ReportAvailable=true Ready: 1 report can be downloaded: kubectl prism profile download --claim c.",
	},
	"waits for a range": {
		change: nvtx, reports: []report.Report{of(report.Recording, "RangeNotReached")}, available: pending,
		profiling: "Profiling=false RangeNotReached: 1 process waits for the NVTX range step@train, which starts the recording: " + where + ".",
	},
	"never reached the range": {
		change: func(c *v1alpha1.ProfilerConfig) { c.Start = new(v1alpha1.StartCUDAProfilerAPI) }, reports: []report.Report{of(report.Lost, "RangeNotReached")},
		profiling: "Profiling=false RangeNotReached: Process " + where + " exited before it reached cudaProfilerStart; change the program, or set start: Immediate.",
		available: "ReportAvailable=false RangeNotReached: Process " + where + " exited before it reached cudaProfilerStart; change the program, or set start: Immediate.",
	},
	"killed in a range":        {change: nvtx, reports: []report.Report{of(report.Lost, "ReportLost")}, profiling: ended, available: killed},
	"killed with two profiles": {reports: []report.Report{of(report.Lost, "SeveralProfiles")}, profiling: severalEnded, available: killed},
	"another profile won": {
		reports: []report.Report{of(report.Lost, "OtherProfileWon")}, available: none,
		profiling: "Profiling=false SeveralProfiles: Process " + where + " is not recorded for this claim, but for another claim of the container if the " +
			"ProfilerConfig of that claim selects it; keep one ProfilerConfig per container.",
	},
	"killed silently": {reports: []report.Report{of(report.Lost, "")}, profiling: ended, available: killed},
	"lost otherwise": {
		reports: []report.Report{of(report.Lost, "SessionRemoved")}, profiling: ended,
		available: "ReportAvailable=false ReportLost: The recording of " + where + " ended without a readable report (SessionRemoved).",
	},
	"too large": {
		reports: []report.Report{of(report.Lost, "StoreFull")}, profiling: ended,
		available: "ReportAvailable=false StoreFull: The report of " + where + " exceeds the space that is left for reports of the claim or the node; " + remedy,
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
		available: "ReportAvailable=true Raw: 1 report could not be imported on the node, and can be downloaded raw: kubectl prism profile download --claim c.",
	},
	"fell back, runs": {
		reports: []report.Report{of(report.Recording, "FellBackUnprofiled")}, available: none,
		profiling: "Profiling=false FellBackUnprofiled: Process " + where + " ran unprofiled because the profiler did not start; it requires libgcc_s.so.1 in the " +
			"image, /dev/shm and several hundred MiB of memory.",
	},
	"slots taken": {
		change: func(c *v1alpha1.ProfilerConfig) { c.Match = &v1alpha1.ProcessMatch{MaxSessions: new(int32(1))} }, available: none,
		reports:   []report.Report{of(report.Lost, "SlotsTaken")},
		profiling: "Profiling=false SlotsTaken: Process " + where + " ran unprofiled because match.maxSessions (1) processes of the container were already recorded; raise it to record more.",
	},
	"sanitizer": {
		reports: []report.Report{of(report.Lost, "SanitizerNotSupported")}, available: none,
		profiling: "Profiling=false SanitizerNotSupported: Process " + where + " ran unprofiled because it uses a sanitizer, " +
			"which nsys does not support; profile a build without it.",
	},
	"no tool": {
		reports: []report.Report{of(report.Lost, "ToolNotInstalled")}, available: none,
		profiling: "Profiling=false ToolNotInstalled: Process " + where + " ran unprofiled because the container no longer contains the profiler; create the pod again.",
	},
	"volume at /etc": {
		reports: []report.Report{of(report.Lost, "PreloadNotPossible")}, available: none,
		profiling: "Profiling=false PreloadNotPossible: Process " + where + " is not recorded because /etc/ld.so.preload could not be replaced; remove the " +
			"volume at /etc, or add a file of that name to it.",
	},
	"static": {
		reports: []report.Report{of(report.Lost, "StaticOrMusl")}, available: none,
		profiling: "Profiling=false StaticOrMusl: Process " + where + " is statically linked or uses musl, and does not load the profiler's library; link it dynamically " +
			"and use an image with glibc.",
	},
	"full":                {reports: []report.Report{of(report.Lost, "Stopped")}, stopped: true, profiling: full, available: none},
	"full while it is so": {reports: []report.Report{of(report.Recording, "")}, stopped: true, profiling: full, available: pending},
	"was full": {
		reports: []report.Report{of(report.Lost, "Stopped")}, available: none,
		profiling: "Profiling=false StoreFull: Process " + where + " ran unprofiled because the reports of the claim or of the node reached their size limit; " + remedy,
	},
}

// TestOf_States_EachReason: for each state a claim reports the event, the process and the remedy.
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

// TestOf_ProcessWithoutNames_OneSentence: the claim reports that the process has no name.
func TestOf_ProcessWithoutNames_OneSentence(t *testing.T) {
	t.Parallel()
	c := Of(State{Claim: "c", Config: config(nil), Reports: []report.Report{{State: report.Lost, Reason: "ToolNotInstalled"}}})[1]
	assert.True(t, strings.HasPrefix(c.Message, "A process ran unprofiled because "), c.Message)
}

// TestOf_SeveralSessions_RecordingWins: a running recording is more important than an unrecorded process.
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

// TestOf_HostileTexts_EscapedAndBounded: a condition's message is one printable line of at most 1 KiB, for any name of a container or any
// pattern.
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
