// Package layout decides how each GPU of the node is advertised, and publishes it: whole, in time-sliced shares, or in MIG devices, as the
// node's configuration requires, and as the API server and the allocated devices allow. A GPU changes to its next layout when the leaving
// devices have been released: see Rollout.
//
// One goroutine writes: the one of Controller.Run, and before it the one of Controller.Begin. It reads the configuration and the claims'
// records, probes the API server, checks taints, reads claims and saves layouts. During a call of the API server it continues with
// everything else, because a change of the inventory must not wait for an answer. Other goroutines leave requests, which it applies.
//
// Everything else reads Controller.Snapshot, which never waits: it is one atomic read of an immutable value. A snapshot and its GPUs belong
// together. If the inventory knows a newer view, for example just after a claim changed the MIG mode of a GPU, the snapshot combines the
// last layout with the GPUs of the latest view: the layout lists the modes of each GPU, and the GPU's state in that view determines the
// devices. The layout is unknown while a GPU is not yet in a snapshot. So a reader that comes after a Refresh of the inventory finds GPUs
// at least as new as that Refresh.
package layout
