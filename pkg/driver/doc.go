// Package driver is the kubelet's end of the path of a claim: it gives each claim of a call a logger, calls prepare, and
// turns the outcome into an answer. It decides nothing. Logs and metrics are emitted here.
package driver
