// Package nodeconfig works out what each GPU of a node is offered as: it reads a NodeConfig against the GPUs that are there.
//
// It is pure: same input, same layout. api/v1alpha1 judges what can be judged without hardware; here is refused what this
// node's GPUs lack.
package nodeconfig
