// Package native is what the profiler runs inside containers: a library and a program, both in C. It has no code in Go but their tests.
package native
