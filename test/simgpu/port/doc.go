// Package port puts a simulated GPU node behind the ports of the product, for its tests.
//
// Host and Session answer from the model, without a library, a socket or a file. Package sandbox is the real path, through
// libnvidia-ml.
package port
