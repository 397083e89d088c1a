// Package reconcile compares the node's state for claims with the API server and the kubelet, and undoes effects that no call will ever
// undo: a pod was deleted by force while the plugin was not running, a kubelet lost its state, a record was damaged.
//
// A claim's record is undone only if the API server has been reporting for five minutes that the claim is gone, reports it again now, and
// the kubelet has just answered without it. A server that does not answer reports nothing: neither that a claim is gone nor that it exists,
// and the time without answers does not count. A round costs one call to the kubelet on the same node, and one read at the API server for
// each claim that the kubelet does not list: none on a node whose pods run.
//
// The package decides and keeps time; it reads and acts through ports.
package reconcile
