//go:build !k8s138

package kube

import "k8s.io/dynamic-resource-allocation/resourceslice"

// allowQualifiedNames does nothing: before 0.38 the library checks no names.
func allowQualifiedNames(*resourceslice.Options) {}
