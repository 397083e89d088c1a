// Package profile has the commands of kubectl prism profile: they list, download and remove reports of profiled processes, and say of a pod
// whether and why its processes are profiled.
package profile
