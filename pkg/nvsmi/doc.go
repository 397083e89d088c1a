// Package nvsmi runs the driver's own nvidia-smi for what NVML cannot do: setting the time-slice interval of a GPU. Of the other
// packages only mpsd runs programs.
//
// The program is the one of the driver installation in use. It runs with the C library of this process and with the NVML library of
// that installation preloaded, the same library that this process has loaded. It needs neither a shell nor a root directory of its own.
//
// NVML does not report the time-slice interval in force, and reading it with the program costs as much as setting it, so callers
// record what they set.
package nvsmi
