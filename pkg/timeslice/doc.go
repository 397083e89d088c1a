// Package timeslice sets for how long a process runs on a GPU before the next gets its turn: for one claim that has the GPU for
// itself, as a step of its Prepare, and for a GPU that is offered in time-sliced replicas, as a part of the node's configuration.
//
// The setting is one for the whole GPU, ends with the driver, and cannot be read back at a price that a claim should pay. So it is
// noted, before it is made, in two small files for each GPU: what the node's configuration has set, and what a claim has set
// over that. What a claim has set is put back to what the node's configuration wants by then. A note counts in the boot
// in which it was made.
package timeslice
