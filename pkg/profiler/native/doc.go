// Package native contains the code of the profiler that runs inside containers: a library and a program, both in C. Its only code in Go are
// tests.
package native
