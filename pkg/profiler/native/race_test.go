//go:build race

package native

// raceDetector reports whether this program was built with the race detector. The detector does not see programs in C and nsys, and this
// package contains no Go besides their tests: "make check" would run them again without benefit. "make unit" runs them.
const raceDetector = true
