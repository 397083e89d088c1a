// Package listen limits the connections, time and request memory of clients, because any pod of the cluster may connect to the servers. All
// HTTP servers of Prism use it, and their limits are in limits.go.
package listen
