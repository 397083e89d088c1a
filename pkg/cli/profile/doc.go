// Package profile implements the commands of kubectl prism profile: they list, download and remove reports of profiled processes, start
// and end recordings, and explain whether and why the processes of a pod are profiled.
package profile
