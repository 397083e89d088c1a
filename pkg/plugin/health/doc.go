// Package health detects whether the node's GPUs can be allocated, and reports it as Events of the Node: whether the NVIDIA driver and each
// GPU answer (DriverEvents), and whether another component allocates the same GPUs (Conflicts). It changes nothing on the node.
package health
