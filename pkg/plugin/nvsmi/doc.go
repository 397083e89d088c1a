// Package nvsmi runs the driver's own nvidia-smi to set the time-slice interval of a GPU, which NVML cannot do. Of the other packages only
// mpsd runs programs.
//
// The program belongs to the driver installation in use. It runs with the C library of this process, and with the NVML library of that
// installation preloaded, which this process has loaded, too. It needs neither a shell nor a root directory of its own.
//
// NVML does not report the time-slice interval in force, and reading it with the program costs as much as setting it. So callers record the
// interval that they set.
package nvsmi
