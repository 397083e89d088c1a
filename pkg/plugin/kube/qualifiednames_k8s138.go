//go:build k8s138

package kube

import "k8s.io/dynamic-resource-allocation/resourceslice"

// allowQualifiedNames allows capacities with the driver's own domain, such as the capacities that select MIG devices (see pkg/plugin/publish). By
// default the library of 0.38 refuses all pools of a node with such a name, once, and does not try again.
func allowQualifiedNames(o *resourceslice.Options) { o.ValidateQualifiedNames = new(false) }
