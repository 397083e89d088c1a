// Package sampler keeps what the driver reports of each GPU up to date: a worker per GPU, one round per interval. It asks the driver
// through the port Library, and /proc through the port Processes; a scrape reads its snapshot and asks neither.
package sampler
