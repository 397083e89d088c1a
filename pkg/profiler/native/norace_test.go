//go:build !race

package native

// raceDetector says whether this program was built with it.
const raceDetector = false
