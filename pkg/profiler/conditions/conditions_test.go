package conditions

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// TestOf_States_EachReason is the table of what a claim can say.
func TestOf_States_EachReason(t *testing.T) {
	t.Parallel()
	nvtx := func(c *v1alpha1.ProfilerConfig) { c.Start, c.NVTXRange = new(v1alpha1.StartNVTX), new("step@train") }
	for name, c := range map[string]struct {
		change               func(c *v1alpha1.ProfilerConfig)
		reports              []report.Report
		stopped              bool
		profiling, available string
	}{
		"nothing yet": {
			profiling: "Profiling=false NoProcessMatched: No process was recorded yet; the profile records the first process of each container that is not excluded.",
			available: "ReportAvailable=false NoReport: The claim has no report.",
		},
		"recording": {
			reports:   []report.Report{of(report.Recording, "")},
			profiling: "Profiling=true Recording: 1 process is recorded: python3 of container main of pod train.",
			available: "ReportAvailable=false Recording: Reports are stored when the processes exit, or recording ends.",
		},
		"waits for a range": {
			change: nvtx, reports: []report.Report{of(report.Recording, "RangeNotReached")},
			profiling: "Profiling=false RangeNotReached: 1 process waits for the NVTX range step@train before the recording begins: python3 of container main of pod train.",
			available: "ReportAvailable=false Recording: Reports are stored when the processes exit, or recording ends.",
		},
		"never reached the range": {
			change:    func(c *v1alpha1.ProfilerConfig) { c.Start = new(v1alpha1.StartCUDAProfilerAPI) },
			reports:   []report.Report{of(report.Lost, "RangeNotReached")},
			profiling: "Profiling=false RangeNotReached: Process python3 of container main of pod train exited and did not reach cudaProfilerStart.",
			available: "ReportAvailable=false ReportLost: The recording of Process python3 of container main of pod train ended without a report that can be read (RangeNotReached).",
		},
		"importing": {
			reports:   []report.Report{of(report.Importing, "")},
			profiling: "Profiling=false Ended: No process is recorded now; the last one was Process python3 of container main of pod train.",
			available: "ReportAvailable=false Importing: 1 report is being imported.",
		},
		"ready": {
			reports:   []report.Report{of(report.Ready, ""), of(report.Raw, "ImportFailed"), of(report.Lost, "ReportLost")},
			profiling: "Profiling=false Ended: No process is recorded now; the last one was Process python3 of container main of pod train.",
			available: "ReportAvailable=true Ready: 2 reports can be downloaded: kubectl prism profile download --claim c.",
		},
		"raw": {
			reports:   []report.Report{of(report.Raw, "ImportFailed")},
			profiling: "Profiling=false Ended: No process is recorded now; the last one was Process python3 of container main of pod train.",
			available: "ReportAvailable=true Raw: 1 report can be downloaded raw, which could not be imported on the node: kubectl prism profile download --claim c.",
		},
		"lost": {
			reports:   []report.Report{of(report.Lost, "ReportLost")},
			profiling: "Profiling=false Ended: No process is recorded now; the last one was Process python3 of container main of pod train.",
			available: "ReportAvailable=false ReportLost: The recording of Process python3 of container main of pod train ended without a report that can be read (ReportLost).",
		},
		"fell back": {
			reports:   []report.Report{of(report.Recording, "FellBackUnprofiled")},
			profiling: "Profiling=false FellBackUnprofiled: Process python3 of container main of pod train runs without the profiler, which did not start.",
			available: "ReportAvailable=false Recording: Reports are stored when the processes exit, or recording ends.",
		},
		"static": {
			reports:   []report.Report{of(report.Lost, "StaticOrMusl")},
			profiling: "Profiling=false StaticOrMusl: Process python3 of container main of pod train is a static program or one of musl, which load no library of the profiler.",
			available: "ReportAvailable=false NoReport: The claim has no report.",
		},
		"full": {
			reports: []report.Report{of(report.Lost, "Stopped")}, stopped: true,
			profiling: "Profiling=false StoreFull: Recording was stopped: the reports of the claim take output.maxBytes, 4Gi, or those of the node take what the node " +
				"has for them; delete reports with kubectl prism profile rm --claim c.",
			available: "ReportAvailable=false NoReport: The claim has no report.",
		},
		"was full": {
			reports:   []report.Report{of(report.Lost, "Stopped")},
			profiling: "Profiling=false StoreFull: Process python3 of container main of pod train runs without the profiler: recording was stopped for the claim.",
			available: "ReportAvailable=false NoReport: The claim has no report.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := said(State{Claim: "c", Config: config(c.change), Reports: c.reports, Stopped: c.stopped})
			assert.Equal(t, []string{
				"ProfilerReady=true Configured: Nsight Systems 2025.5.1 record the first process of each container that is not excluded.", c.profiling, c.available,
			}, got)
		})
	}
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

// TestOf_LongTexts_Bounded: a condition's message is bounded, whatever a container or a pattern is called.
func TestOf_LongTexts_Bounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 5000)
	r := report.Report{Pod: long, Container: long, Process: long, State: report.Recording}
	c := config(func(c *v1alpha1.ProfilerConfig) { c.Match = &v1alpha1.ProcessMatch{Regex: &long} })
	for _, condition := range Of(State{Claim: "c", Config: c, Reports: []report.Report{r, r, r, r}}) {
		assert.Less(t, len(condition.Message), 4096, condition.Type)
	}
}
