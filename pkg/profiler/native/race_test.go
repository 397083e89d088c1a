//go:build race

package native

// raceDetector says whether this program was built with it. It does not see programs in C and nsys, and there is no Go in this package but
// their tests: "make check" would start them all again for nothing. "make unit" runs them.
const raceDetector = true
