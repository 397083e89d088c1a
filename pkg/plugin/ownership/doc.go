// Package ownership tracks the claims that own devices of each GPU, and locks GPUs to keep this information correct: a Table mirrors the
// records, and a Guard updates it under the locks if another process may have changed them. gpu.Excludes decides which devices exclude each
// other.
package ownership
