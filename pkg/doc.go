// Package pkg is the root of the tour. The folder list is the path of a claim:
//
//	driver      the kubelet asks: one result per claim
//	prepare     the transaction: lock, intent, steps, spec, done record
//	claim       pure planning: allocation results + opaque config + node → Plan, or a refusal
//	checkpoint  durable records, one file per claim, and the locks beside them
//	cdi         joins device edits into one claim's CDI spec and writes it
//
//	mig, timeslice   what is done to a GPU for a claim, and undone
//
// Around it stand what the node has (nvml, hostfs, inventory), what its GPUs are advertised as (layout/configsource, nodeconfig, layout),
// how that is published to the scheduler (publish, kube), what is found out and reported (health, events, diagnostics), what is done about
// claims that the kubelet will never unprepare (reconcile, podresources), and the nouns that all of them share (gpu). MPS control daemons
// run in a program of their own (mps, mpsd), and so do the metrics of GPUs: what is measured and how it is shown (metrics), when it is
// measured (sampler), which container has which device (allocation), and the program that joins and serves them (exporter). For the whole
// cluster, devices get the names of extended resources (controller), and configuration is validated when it is written (admission). What a
// process of the plugin consists of, and in which order it is built, is in plugin; it installs the programs that container runtimes start
// for claims with plugin/programs. What claims request besides their devices are extensions (plugin/extension): the metrics of a claim
// (plugin/claimmetrics) and the profiles of its processes (plugin/profiler).
package pkg
