// Package metrics says what GPU metrics there are and turns samples and allocations into pages. It is pure: it reads no driver, no file
// and no clock.
package metrics
