// Package metrics defines the GPU metrics and turns samples and allocations into pages. It is pure: it reads no driver, no file and no
// clock.
package metrics
