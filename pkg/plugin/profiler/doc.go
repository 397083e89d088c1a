// Package profiler is the extension of the kubelet plugin that has the processes of claims profiled: it plans profiles by the rules of the cluster
// and the tools of the node, makes what containers get, and keeps, reports and serves the reports.
package profiler
