// Package check explains for each container of a pod whether its processes are profiled, why, and how to change it. It is pure: the result
// only depends on objects that the user can read.
package check
