// Package download writes reports of profiled processes into a directory. It resumes partial files and verifies complete files. It never
// writes outside the directory or over a foreign file, whatever file names the containers chose.
package download
