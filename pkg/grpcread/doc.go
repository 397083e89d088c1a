// Package grpcread makes unary gRPC calls over a Unix socket and reads the answer as a stream, so that its size costs no memory.
//
// google.golang.org/grpc receives the whole message before it decodes a field, and refuses one above a limit. The lists of the kubelet and of
// the container runtime are as long as tenants make them.
package grpcread
