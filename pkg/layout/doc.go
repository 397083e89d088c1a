// Package layout decides what each GPU of the node is advertised as, and publishes it: whole, in time-sliced shares, in MIG devices, as the
// node's configuration says, and as the API server and the allocated devices allow. A GPU goes from one layout to the next when its
// devices that leave have been released: see Rollout.
//
// One goroutine writes: that of Controller.Run, and before it that of Controller.Begin. It reads the configuration and the claims' records,
// probes the API server, checks taints, reads claims and saves layouts. While a call of the API server runs it goes on with everything else,
// as a change of the inventory must not wait for an answer. Other goroutines leave requests, which it applies.
//
// Everything else reads Controller.Snapshot, which never waits: it is one atomic read of an immutable value. A snapshot and
// its GPUs belong together. Where the inventory has seen another view since, as it has just after a claim changed the MIG mode of a GPU, the
// snapshot has the layout of the last one on the GPUs of the latest view: the layout says of each GPU what it is advertised as, and the GPU's
// state in that view determines the devices. While a GPU is in no snapshot yet the layout is unknown. So a reader
// that comes after a Refresh of the inventory finds its GPUs at least as new as that.
package layout
