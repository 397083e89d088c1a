// Package nodeconfig works out what each GPU of a node is offered as: it reads a NodeConfig against the GPUs that are there.
//
// It is pure: same input, same layout. api/v1alpha1 judges what can be judged without hardware; here is refused what this
// node's GPUs lack.
//
// There are two dialects. A file of NVIDIA's device plugin is translated: each of its shared resources is a cut of some GPUs, and
// all GPUs with the same cuts become one entry of a NodeConfig.
package nodeconfig
