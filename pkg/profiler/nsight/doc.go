// Package nsight says how Nsight Systems is run for a ProfilerConfig: which of the installed versions, and with which switches of
// `nsys profile`, as far as that version has them. It is pure: same configuration and same tool, same switches.
package nsight
