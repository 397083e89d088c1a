// Package claimmetrics is what the kubelet plugin does for claims with a GPUMetricsConfig: prism-exporter reads their options from the records.
package claimmetrics
