// Package reconcile compares what this node keeps for claims with what the API server and the kubelet say, and has undone what
// nobody will ever ask to undo: a pod was deleted by force while the plugin was away, a kubelet lost its memory, a record was
// damaged.
//
// A claim's record is undone only when the API server has been saying for five minutes that the claim is gone, says so again
// now, and the kubelet has just answered without it. Whoever does not answer has said nothing: neither that a claim is gone nor
// that it is there, and the time of his silence counts for nothing. A round costs one call to the kubelet on the same node, and
// one read at the API server for each claim that the kubelet does not list: none on a node whose pods run.
//
// The package decides and keeps time; it asks and acts through ports.
package reconcile
