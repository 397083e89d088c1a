// Package hostfs reads the machine: /sys, /proc, /dev and the places where a driver is installed.
//
// Everything is looked up under one root, the host's "/" as this process sees it ("/host" in a pod, "/" on the bare host).
// Symbolic links are resolved inside that root, as they would be for a process of the host, so that an absolute link never
// leads into the container's own files. It is the only package of the driver that names those trees, and it never writes.
package hostfs
