// Package nodeconfig resolves how each GPU of a node is to be advertised: it reads a NodeConfig against the GPUs of the node.
//
// It is pure: same input, same layout. api/v1alpha1 performs the checks that need no hardware; settings that this node's GPUs do not
// support are refused here.
//
// There are two dialects. A file of NVIDIA's device plugin is translated: each of its shared resources shares some GPUs, and
// all GPUs that are shared alike become one entry of a NodeConfig.
package nodeconfig
