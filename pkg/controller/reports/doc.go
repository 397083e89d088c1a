// Package reports serves the aggregated API profiles.gpu.prism.dev/v1alpha1: the reports of profiled processes on all nodes, and the sessions
// of processes that wait until a command records them. It stores nothing, but asks the plugins of the nodes. It does not trust their answers
// about other nodes.
package reports
