// Package claimmetrics is the kubelet plugin's part of metrics for claims with a GPUMetricsConfig: prism-exporter reads their options from
// the records.
package claimmetrics
