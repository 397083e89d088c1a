// Package inventory knows what this node has now: it finds the driver, keeps one session with it, inspects the GPUs again and
// again, and publishes what it sees as immutable views.
//
// A driver that is not there yet is waited for. One that is unloaded leaves a view without GPUs, and is opened again in this
// process when the same library file is back. A library that was replaced cannot be loaded into this process: Run ends with
// gpu.ErrDriverReplaced, and a new process continues.
package inventory
