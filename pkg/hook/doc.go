// Package hook is the program prism-hook, which container runtimes start before a container: as host root, with the OCI state on stdin. It
// fails containers that must not start. It only counts settings that a tenant can choose; it never executes them or uses them as paths.
package hook
