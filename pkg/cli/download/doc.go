// Package download writes reports of profiled processes into a directory: it resumes what is partial, verifies what is complete, and writes
// no file outside of the directory and over no file of others, whatever names the containers gave to their reports.
package download
