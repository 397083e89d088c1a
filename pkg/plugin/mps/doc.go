// Package mps shares GPUs and MIG devices with MPS: as a step of each claim with a share, and as a reconciler that keeps their control
// daemons running.
//
// The MPS service, another process of the node, runs a control daemon from the first share of a device to the last. Meanwhile the device's
// compute mode is exclusive, so that no process uses the device without MPS. A small file holds the mode before the sharing and the process
// of the daemon. The file belongs to the device and not to a claim, as the first claim may end first. While a shared device lacks a daemon
// its mode is prohibited: a process that finds no daemon runs without MPS and would take the device.
package mps
