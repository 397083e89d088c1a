package report

// The reasons of a claim's conditions about profiles, and of reports.
const (
	// ReasonConfigured: processes of the claim are profiled according to its ProfilerConfig.
	ReasonConfigured = "Configured"
	// ReasonToolNotInstalled: the version of the profiler is not installed on the node, or was not tested there.
	ReasonToolNotInstalled = "ToolNotInstalled"
	// ReasonNotAllowed: the cluster's policy does not allow the profile.
	ReasonNotAllowed = "NotAllowed"
	// ReasonPerfEventsUnavailable: CPU samples were requested, but containers cannot use perf events on the node.
	ReasonPerfEventsUnavailable = "PerfEventsUnavailable"
	// ReasonPreloadNotPossible: the list of preloaded libraries of the container could not be replaced.
	ReasonPreloadNotPossible = "PreloadNotPossible"
	// ReasonStaticOrMusl: the entrypoint is static or uses musl, and preloads nothing.
	ReasonStaticOrMusl = "StaticOrMusl"
	// ReasonSanitizerNotSupported: the process uses a sanitizer, which is incompatible with the profiler's libraries.
	ReasonSanitizerNotSupported = "SanitizerNotSupported"
	// ReasonNoProcessMatched: no process of the container has matched yet.
	ReasonNoProcessMatched = "NoProcessMatched"
	// ReasonRangeNotReached: the recording waits for an NVTX range or for the CUDA profiler API.
	ReasonRangeNotReached = "RangeNotReached"
	// ReasonFellBackUnprofiled: the profiler did not start, and the process runs without it.
	ReasonFellBackUnprofiled = "FellBackUnprofiled"
	// ReasonSlotsTaken: maxSessions processes were already profiled.
	ReasonSlotsTaken = "SlotsTaken"
	// ReasonSeveralProfiles: several claims of a container request a profile, and another one applies.
	ReasonSeveralProfiles = "SeveralProfiles"
	// ReasonOtherProfileWon: the same, for the claim whose profile does not apply.
	ReasonOtherProfileWon = "OtherProfileWon"
	// ReasonStoreFull: reports reached their size limit.
	ReasonStoreFull = "StoreFull"
	// ReasonReportLost: a recording ended without a readable report.
	ReasonReportLost = "ReportLost"
)
