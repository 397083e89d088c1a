package report

// The reasons of a claim's conditions about profiles, and of reports.
const (
	// ReasonConfigured: processes of the claim are profiled as its ProfilerConfig says.
	ReasonConfigured = "Configured"
	// ReasonToolNotInstalled: the version of the profiler is not installed on the node, or not proven there.
	ReasonToolNotInstalled = "ToolNotInstalled"
	// ReasonNotAllowed: the cluster's policy does not allow the profile.
	ReasonNotAllowed = "NotAllowed"
	// ReasonPerfEventsUnavailable: CPU samples were asked for, and the node does not let containers use perf events.
	ReasonPerfEventsUnavailable = "PerfEventsUnavailable"
	// ReasonPreloadNotPossible: the list of preloaded libraries of the container could not be replaced.
	ReasonPreloadNotPossible = "PreloadNotPossible"
	// ReasonStaticOrMusl: the entrypoint is static or uses musl, and preloads nothing.
	ReasonStaticOrMusl = "StaticOrMusl"
	// ReasonSanitizerNotSupported: the process has the runtime of a sanitizer, which does not work beside the profiler's libraries.
	ReasonSanitizerNotSupported = "SanitizerNotSupported"
	// ReasonNoProcessMatched: no process of the container has matched yet.
	ReasonNoProcessMatched = "NoProcessMatched"
	// ReasonRangeNotReached: the recording waits for an NVTX range or for the CUDA profiler API.
	ReasonRangeNotReached = "RangeNotReached"
	// ReasonFellBackUnprofiled: the profiler did not start, and the process runs without it.
	ReasonFellBackUnprofiled = "FellBackUnprofiled"
	// ReasonSlotsTaken: as many processes as maxSessions were profiled already.
	ReasonSlotsTaken = "SlotsTaken"
	// ReasonSeveralProfiles: several claims of a container have a profile, and another one won.
	ReasonSeveralProfiles = "SeveralProfiles"
	// ReasonOtherProfileWon: the same, of the claim that did not win.
	ReasonOtherProfileWon = "OtherProfileWon"
	// ReasonStoreFull: reports take as many bytes as they may.
	ReasonStoreFull = "StoreFull"
	// ReasonReportLost: a recording ended without a report that can be read.
	ReasonReportLost = "ReportLost"
)
