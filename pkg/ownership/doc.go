// Package ownership tracks which claim owns which device of which GPU, and locks GPUs so that this stays true: a Table mirrors the
// records, and a Guard brings it up to date under the locks where another process may have changed them. gpu.Excludes decides which
// devices exclude each other.
package ownership
