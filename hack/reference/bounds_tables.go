package main

const (
	retryAfter = "status 429 with `Retry-After`"
	busy       = "status 503 with `Retry-After`"
	refusedNow = "the connection is closed"
)

// tenantBounds limit resources that all tenants share.
var tenantBounds = []bound{
	{"reports API, each replica of the controller", "requests for a namespace, in progress or waiting", "pkg/controller/reports.namespaceCalls", false, retryAfter},
	{"reports API, each replica of the controller", "of these, requests of one user", "pkg/controller/reports.userCalls", false, retryAfter},
	{"reports API, each replica of the controller", "concurrent requests for a namespace", "pkg/controller/reports.runningCalls", false, "they wait for each other"},
	{"reports API, each replica of the controller", "requests of all namespaces", "pkg/controller/reports.maxCalls", false, retryAfter},
	{"reports API, each replica of the controller", "places reserved for the cluster's own controllers", "pkg/controller/reports.systemCalls", false, ""},
	{"reports API, each replica of the controller", "nodes that are queried concurrently", "pkg/controller/reports.asked", false, "they wait"},
	{"reports API, each replica of the controller", "of these, nodes that are queried for one namespace", "pkg/controller/reports.namespaceAsked", false, "they wait"},
	{"reports API, each replica of the controller", "concurrent lists", "pkg/controller/reports.listSeats.All", false, retryAfter},
	{"reports API, each replica of the controller", "lists of one namespace", "pkg/controller/reports.namespaceLists", false, retryAfter},
	{"reports API, each replica of the controller", "lists of one user", "pkg/controller/reports.userLists", false, retryAfter},
	{"reports API, each replica of the controller", "reports in an answer", "pkg/controller/reports.maxItems", false, "the next page"},
	{"reports API, each replica of the controller", "memory of an answer", "pkg/controller/reports.maxCost", true, "the next page"},
	{"reports API, each replica of the controller", "time of an answer", "pkg/controller/reports.listTime", false, "the next page"},
	{"reports API, each replica of the controller", "downloads of a namespace", "pkg/controller/reports.namespaceDownloads", false, retryAfter},
	{"reports API, each replica of the controller", "downloads of a user", "pkg/controller/reports.userDownloads", false, retryAfter},
	{"reports API, each replica of the controller", "time of a download without progress", "pkg/controller/reports.stallTime", false, "it ends, and the next request resumes it"},
	{"reports API, each replica of the controller", "cached authorization decisions", "pkg/controller/reports.maxDecisions", false, "the least recently used is dropped"},
	{"reports API, each replica of the controller", "body of a request", "pkg/controller/reports.maxBody", true, "status 413"},
	{"HTTPS port of the controller", "connections", "pkg/listen.Admission.Total", false, "the oldest connection of the address with the most is closed"},
	{"HTTPS port of the controller", "connections of an address", "pkg/listen.Admission.PerClient", false, refusedNow},
	{"HTTPS port of the controller", "memory of requests", "pkg/listen.RequestMemory.Total", true, busy},
	{"HTTPS port of the controller", "memory of requests of an address", "pkg/listen.RequestMemory.PerClient", true, busy},
	{"ports for metrics and probes", "connections", "pkg/listen.Pages.Total", false, "the oldest connection of the address with the most is closed"},
	{"ports for metrics and probes", "connections of an address", "pkg/listen.Pages.PerClient", false, refusedNow},
	{"reports API of the plugin", "connections of controllers", "pkg/listen.Verified", false, "they wait for 3 s, then they are closed"},
	{"reports API of the plugin", "connections of unverified clients", "pkg/listen.Handshakes.Total", false, "the oldest connection of the address with the most is closed"},
	{"reports API of the plugin", "of these, connections of an address", "pkg/listen.Handshakes.PerClient", false, refusedNow},
	{"reports API of the plugin", "downloads", "pkg/plugin/profiler/node.contentSeats.All", false, retryAfter},
	{"reports API of the plugin", "of these, downloads of a namespace", "pkg/plugin/profiler/node.contentSeats.Namespace", false, retryAfter},
	{"reports API of the plugin", "of these, downloads of a user", "pkg/plugin/profiler/node.contentSeats.User", false, retryAfter},
	{"store of reports on a node", "reports of a claim", "pkg/plugin/profiler/store.claimReports", false, "recording is stopped"},
	{"store of reports on a node", "reports", "pkg/plugin/profiler/store.nodeReports", false, "recording is stopped"},
	{"store of reports on a node", "equal parts of the node's bytes and reports, of which one namespace may use one", "pkg/plugin/profiler/store.namespaces", false, "recording of the namespace is stopped"},
	{"store of reports on a node", "lost reports that a claim keeps", "pkg/plugin/profiler/store.claimLost", false, "the oldest are dropped"},
	{"store of reports on a node", "reports of a namespace without a file", "pkg/plugin/profiler/store.namespaceFileless", false, "the oldest are dropped"},
	{"store of reports on a node", "entries of a claim's directory read in a scan", "pkg/plugin/profiler/store.maxEntries", false, "the others are removed"},
	{"store of reports on a node", "bytes of a note", "pkg/plugin/profiler/store.maxNote", true, "the rest is not read"},
	{"store of reports on a node", "bytes of a claim's notes in a scan", "pkg/plugin/profiler/store.scanNotes", true, "the next scan"},
	{"store of reports on a node", "bytes of reports copied for a claim in a scan", "pkg/plugin/profiler/store.scanBytes", true, "the next scan"},
	{"plugin", "containers with known pods", "pkg/podresources.MaxContainers", false, "the same number for each claim"},
	{"plugin", "shortest time between two statuses of a claim about its profile", "pkg/plugin/profiler.statusPause", false, "the next status includes both"},
	{"plugin", "claims that are followed after they were unprepared", "pkg/plugin/profiler.maxFollowed", false, "the oldest are not followed"},
	{"plugin", "automaton states of a pattern", "pkg/pattern.MaxStates", false, "the claim is refused"},
	{"MPS service", "log of a control daemon", "pkg/mpsd.logLimit", true, "its first half is discarded"},
	{"`/dev/shm` of an MPS share", "files, for any size", "pkg/mpsd.shmLeastFiles", false, "one for each 16 KiB, then no more files can be created"},
	{"hook program", "time to wait for the profile of a container", "pkg/hook.prepareTimeout", false, "it starts without a profile"},
}

// recoveryBounds limit durations.
var recoveryBounds = []bound{
	{"Prepare and Unprepare", "retries of transient errors", "pkg/plugin.retryBudget", false, "the kubelet calls again"},
	{"Prepare and Unprepare", "cleanup that delays an Unprepare", "pkg/plugin.deferCleanupAfter", false, "it becomes pending, and the GPU is tainted"},
	{"Prepare and Unprepare", "undoing one effect", "pkg/plugin/prepare.undoTime", false, "it becomes pending"},
	{"Prepare and Unprepare", "retries for a device that is no longer advertised after its allocation", "pkg/plugin.permitTime", false, "refused"},
	{"layout of a GPU", "taint before devices are removed", "pkg/plugin/layout.taintTime", false, ""},
	{"layout of a GPU", "after an edit of the configuration, at least", "pkg/plugin/layout.debounce", false, ""},
	{"layout of a GPU", "spread of nodes that read an edit", "pkg/plugin/layout.pageInterval", false, ""},
	{"layout of a GPU", "between two checks for blocking claims, at most", "pkg/plugin/layout.checkMax", false, ""},
	{"garbage collection", "between two rounds", "pkg/plugin/reconcile.Period", false, ""},
	{"garbage collection", "reports that a claim is gone", "pkg/plugin/reconcile.goneFor", false, "its record is undone"},
	{"MPS", "a control daemon has exited and its GPU is not PROHIBITED", "pkg/plugin/mps.exitTime", false, "plus the time to set it"},
	{"MPS", "the MPS service does not answer", "pkg/plugin/mps.grace", false, "MPS devices are tainted"},
	{"MPS", "between two reads of the effective limits", "pkg/plugin/mps.period", false, ""},
	{"MPS", "between two restarts of a daemon that fails, at most", "pkg/plugin/mps.restartMost", false, ""},
	{"update of the plugin", "writing the last statuses of claims when the process exits", "pkg/plugin.drainTime", false, "the next process writes them"},
}
