// Package nodeconfig resolves what each GPU of a node is to be advertised as: it reads a NodeConfig against the GPUs that are there.
//
// It is pure: same input, same layout. api/v1alpha1 checks what can be checked without hardware; what this node's GPUs lack is
// refused here.
//
// There are two dialects. A file of NVIDIA's device plugin is translated: each of its shared resources shares some GPUs, and
// all GPUs that are shared alike become one entry of a NodeConfig.
package nodeconfig
