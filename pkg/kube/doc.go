// Package kube is the API side of the driver on a node: it keeps ResourceSlices as pkg/publish describes them, writes what
// became of a claim's devices into the claim's status, reports what an operator must know as Events of the Node, reads node
// configurations, and finds out what the API server would drop of a slice.
//
// Nothing here stands in the way of a claim: publishing runs on its own, and status and events are queued, never waited for.
// The package logs nothing and knows no metrics library; it reports through callbacks and counters.
//
// What it needs from RBAC, with <driver> for the driver's name:
//
//	resource.k8s.io  resourceslices          list watch create update delete (create also for dry runs)
//	resource.k8s.io  resourceclaims          get list (list only while what is offered changes)
//	resource.k8s.io  resourceclaims/status   patch
//	resource.k8s.io  resourceclaims/driver   associated-node:patch, resourceNames [<driver>]
//	""               nodes                   get list watch (list and watch only where a label chooses the node configuration)
//	""               configmaps              get list watch (only where a node configuration is in one, and of that one)
//	events.k8s.io    events                  create patch (in the namespace "default")
//
// The node association of the fourth line is read from the token, so the client must use a token bound to the plugin's pod.
package kube
