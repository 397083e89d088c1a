// Package nvsmi runs the driver's own nvidia-smi for what NVML cannot do: to set how long the time slices of a GPU are. It is the
// only package that runs programs.
//
// The program is that of the driver installation in use, run with the C library of this process and with the NVML library of
// that installation loaded before any other, as this process has loaded it itself. It neither needs a shell nor a root of its own.
//
// Nobody can ask NVML for the time slices in force, and asking the program costs as much as setting them: who sets them remembers.
package nvsmi
