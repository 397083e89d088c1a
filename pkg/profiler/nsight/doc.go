// Package nsight decides how to run Nsight Systems for a ProfilerConfig: it chooses the installed version, and the switches that the commands
// of the version support: `nsys profile`, or `nsys launch` and `nsys start`. It is pure: same configuration and same tool, same switches.
package nsight
