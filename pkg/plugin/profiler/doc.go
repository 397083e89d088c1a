// Package profiler is the extension of the kubelet plugin that profiles the processes of claims: it plans profiles by the rules of the
// cluster and the tools of the node, prepares the files for containers, and stores, reports and serves the reports.
package profiler
