// Package gpu holds the nouns of the driver: the GPU, the devices that it is advertised as, the node that has them, and our errors.
//
// It imports nothing of ours and no library, so that every other package can speak in its terms. Values are plain data and
// safe to share as long as they are not written to.
package gpu
