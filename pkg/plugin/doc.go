// Package plugin puts the kubelet plugin together. Every process that prepares claims is built here, from adapters that say what it works
// on: the node's own disk, driver and API server in the program, others in tests. So what tests kill and measure is what is shipped.
package plugin
