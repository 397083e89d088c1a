// Package listen bounds what clients can take of a server that any pod of the cluster may connect to: connections, time, and memory for
// requests. All HTTP servers of Prism use it, and their bounds are in limits.go.
package listen
