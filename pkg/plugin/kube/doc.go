// Package kube is the driver's access to the API server on a node: it writes the ResourceSlices that pkg/plugin/publish builds, writes the status
// of a claim's devices, sends Events of the Node, reads node configurations, and probes which fields of a ResourceSlice the API server
// stores.
//
// No claim waits for it: publishing runs in the background, and statuses and Events are queued. The package does not log and uses no
// metrics library; it reports through callbacks and counters.
//
// RBAC rules, with <driver> for the driver's name:
//
//	resource.k8s.io  resourceslices          list watch create update delete (create also for dry runs)
//	resource.k8s.io  resourceclaims          get list (list only while a layout changes)
//	resource.k8s.io  resourceclaims/status   patch
//	resource.k8s.io  resourceclaims/driver   associated-node:patch, resourceNames [<driver>]
//	""               nodes                   get list watch (list and watch only of the own one)
//	""               configmaps              get list watch (only the one with the node configuration, if any)
//	events.k8s.io    events                  create patch (in the namespace "default")
//
// The API server takes the node association of the fourth line from the token, so the client must use one bound to the plugin's pod.
package kube
