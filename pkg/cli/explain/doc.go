// Package explain says on which nodes a pod's claims can be allocated, and on the others the first cause, the claims in the way, and the
// changes that help. Whether claims fit, only the scheduler's allocator decides. The package computes: it neither asks the API server nor
// reads a clock.
package explain
