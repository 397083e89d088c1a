// Package timeslice sets the time-slice interval of GPUs: for one claim with an exclusive GPU, as a step of its Prepare, and for a
// GPU that is advertised as time-sliced shares, as a part of the node's configuration.
//
// The setting applies to the whole GPU, is lost when the driver is unloaded, and reading it costs a run of nvidia-smi. So it is
// recorded before it is made, in up to two small files per GPU: the interval of the node's configuration, and the interval of a claim,
// which overrides the former. When the claim is unprepared, the GPU gets the interval that the node's configuration has by then. A
// record is valid only in the boot in which it was written.
package timeslice
