// Package publish turns what a node has into the ResourceSlices that tell the scheduler about it.
//
// It is pure: the same node gives the same slices, byte for byte, so that a restart of the plugin writes nothing to the API
// server. It neither talks to the server (pkg/kube does) nor looks at hardware (pkg/inventory does).
//
// A GPU that is only offered whole sits, without counters, in the node's pool "<node>": the allocator then tests "in use"
// before anything else, which keeps a busy node at microseconds per pod. A GPU that is offered in parts too has a pool of its
// own, "<node>/gpu-<id>": its devices draw on one counter set, so that the scheduler never gives out two that cannot be at the
// same time, and changing one GPU touches no other's slices. API servers before 1.36 keep no counters: for them the layout is
// disjoint (gpu.Layout.Disjoint), which publishes only devices that can all be at the same time.
//
// Nothing that changes by itself (utilisation, temperature, processes) is published, because every update of a slice wakes all
// pods that were rejected before.
package publish
