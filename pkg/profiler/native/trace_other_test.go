//go:build !amd64

package native

// asTracer and traceLibrary exist for amd64: system calls have other numbers elsewhere.
const asTracer = "NATIVE_TEST_TRACER"

func traceLibrary() error { return nil }
