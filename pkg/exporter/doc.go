// Package exporter puts the parts of prism-exporter together and serves what they say.
package exporter
