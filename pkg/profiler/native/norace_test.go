//go:build !race

package native

// raceDetector reports whether this program was built with the race detector.
const raceDetector = false
