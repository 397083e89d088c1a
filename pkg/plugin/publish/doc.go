// Package publish turns a node's devices into the ResourceSlices from which the scheduler allocates.
//
// It is pure: the same node gives the same ResourceSlices, byte for byte, so that a restart of the plugin writes nothing to the API
// server. It neither calls the server (pkg/plugin/kube does) nor inspects hardware (pkg/plugin/inventory does).
//
// A GPU that is advertised whole only sits, without counters, in the node's pool "<node>": the allocator then tests "in use" before
// anything else, which keeps a busy node at microseconds per pod. A partitioned GPU is in its own pool, "<node>/gpu-<id>": its devices
// consume one counter set, so that the scheduler never allocates two that cannot exist at the same time, and a change of one GPU changes no
// ResourceSlice of another. API servers before 1.36 store no counters: for them the layout is disjoint (gpu.Layout.Disjoint), which
// publishes only devices that can all exist at the same time.
//
// Each family of devices has one file, and one line in Families.
//
// Nothing that changes by itself (utilisation, temperature, processes) is published, because every update of a ResourceSlice wakes all
// pods that were rejected before.
package publish
