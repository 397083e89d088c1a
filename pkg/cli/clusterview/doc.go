// Package clusterview is a compact picture of the devices of a cluster, and of the claims and pods that use or wait for them. It computes: it
// neither asks the API server nor reads a clock.
package clusterview
