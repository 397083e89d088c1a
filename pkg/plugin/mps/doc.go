// Package mps has GPUs and MIG devices shared with MPS: as a step of each claim that has a share, and as a reconciler that keeps their
// control daemons running.
//
// A control daemon is run by the MPS service, another process of the node, and is there from the first share of a device to the last.
// While it is, the device's compute mode is exclusive, so that no process uses the device without MPS; the mode that it had before is in a
// small file, with the process of the daemon. The file belongs to the device and not to a claim, as the first claim may end first. While a
// shared device has no daemon its mode is prohibited: a process that finds no daemon runs without MPS and would take the device.
package mps
