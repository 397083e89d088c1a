// Package port puts a simulated GPU node behind the ports of the product, for its tests.
//
// Host and Session answer from the model, without a library, a socket or a file. Sandbox is the whole driver below a temporary
// directory: the real path through libnvidia-ml, to be driven from a child process, because a process can load one such
// library only.
package port
