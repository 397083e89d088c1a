// Package reports serves the aggregated API profiles.gpu.prism.dev/v1alpha1: the reports of all nodes' profiled processes. It stores nothing:
// it asks the plugins of the nodes, whose answers it does not trust beyond their own node.
package reports
