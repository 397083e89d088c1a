// Package cluster reads the GPUs of nodes, and the claims that they are allocated to, from the API server as the user of a kubeconfig.
package cluster
