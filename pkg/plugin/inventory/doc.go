// Package inventory tracks the driver and the GPUs of this node: it finds the driver, keeps one session with it, inspects the GPUs
// regularly, and publishes the results as immutable views.
//
// The inventory waits for a driver that is not installed yet. After the driver is unloaded, the view contains no GPUs; the same process
// opens the driver again when the same library file is back. A replaced library cannot be loaded into this process: Run ends with
// gpu.ErrDriverReplaced, and a new process continues.
package inventory
