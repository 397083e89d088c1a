// Package port implements the product's ports for GPUs with a simulated GPU node, for tests.
//
// Host and Session use the model directly, without a library, a socket or a file. Package sandbox uses the real path, through
// libnvidia-ml.
package port
