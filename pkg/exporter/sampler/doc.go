// Package sampler keeps the driver's measurements of each GPU up to date, with a worker per GPU and one round per interval. It queries the
// driver through the port Library, and /proc through the port Processes; a scrape reads the snapshot and queries neither.
package sampler
