// Package pkg is the root of the tour. The folder list is the path of a claim:
//
//	driver      the kubelet asks: one result per claim
//	prepare     the transaction: lock, intent, steps, spec, done record
//	claim       pure planning: allocation results + opaque config + node → Plan, or a refusal
//	checkpoint  durable records, one file per claim, and the locks beside them
//	cdi         joins device edits into one claim's CDI spec and writes it
//
//	mig, timeslice   the changes to a GPU for a claim, and their removal
//
// Around it stand packages for the node's state (nvml, hostfs, inventory), the layout of its GPUs (layout/configsource, nodeconfig,
// layout), publication to the scheduler (publish, kube), findings and reports (health, events, diagnostics), claims that the kubelet will
// never unprepare (reconcile, podresources), and the nouns that all of them share (gpu). MPS control daemons run in a separate program
// (mps, mpsd), and so do the metrics of GPUs: the measured values and their format (metrics), the times of measurement (sampler), the
// devices of each container (allocation), and the program that joins and serves them (exporter). For the whole cluster, devices get the
// names of extended resources (controller), and configuration is validated when it is written (admission). The parts of a plugin process,
// and the order in which they are built, are in plugin; it installs the programs that container runtimes start for claims with
// plugin/programs. Claims' requests besides their devices are extensions (plugin/extension): the metrics of a claim (plugin/claimmetrics)
// and the profiles of its processes (plugin/profiler).
package pkg
