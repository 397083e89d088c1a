// Package validation checks inside a container whether the GPUs of its claim can be used: device nodes, CUDA, a context and memory.
package validation
