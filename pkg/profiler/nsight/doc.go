// Package nsight decides how to run Nsight Systems for a ProfilerConfig: it chooses the installed version, and the switches of `nsys
// profile` that the version supports. It is pure: same configuration and same tool, same switches.
package nsight
