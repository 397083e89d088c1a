// Package plugin puts the kubelet plugin together. Every process that prepares claims is built here, from adapters: the node's own disk,
// driver and API server in the program, others in tests. So tests kill and measure the same code that is shipped.
package plugin
