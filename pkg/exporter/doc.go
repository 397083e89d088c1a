// Package exporter puts the parts of prism-exporter together and serves what they say. Nothing is collected on a scrape: a page is made of
// the last samples and allocations at the first request after they changed, and kept until they change again.
package exporter
