// Package nvml discovers and changes GPUs through the NVIDIA driver's library libnvidia-ml.so.1. It is the only package that imports
// go-nvml and nvcdi, and it converts vendor codes to the errors of package gpu.
//
// Three facts about that library shape the package:
//
//   - A process binds it once. The C library keeps the first libnvidia-ml that was loaded, so a session can be closed and
//     opened again on the same file, but another file needs another process: Open refuses it with gpu.ErrDriverReplaced.
//   - A function that the loaded driver lacks kills the process when it is called. Every call names its symbol and is made
//     only when the library has it; otherwise it is a *gpu.UnsupportedError.
//   - A call can hang for ever in the kernel. Every call has a deadline; what hangs keeps one thread, and no further call is
//     made to that GPU until it returns. Other GPUs go on.
//
// Symbols are bound lazily: programs that import this package need cgo and must be linked with
//
//	-ldflags "-extldflags=-Wl,-z,lazy"
//
// if the C compiler binds at start by default. Otherwise they fail at start with "undefined symbol: nvml…".
package nvml
