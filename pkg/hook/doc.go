// Package hook is the program prism-hook, which container runtimes start before a container: as host root, with the OCI state on stdin. It
// fails the container when that must not start. What a tenant can set of a container is counted, and never executed or used as a path.
package hook
