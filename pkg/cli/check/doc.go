// Package check says of the containers of a pod whether their processes are profiled, why, and what to change. It is pure: what it says
// follows from objects that the user can read.
package check
