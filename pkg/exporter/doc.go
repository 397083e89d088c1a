// Package exporter puts the parts of prism-exporter together and serves their pages. A scrape collects nothing: the first request after a
// change renders a page from the last samples and allocations, and the page is kept until they change again.
package exporter
