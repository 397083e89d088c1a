// Package hostfs reads the host: /sys, /proc, /dev and the directories where a driver is installed.
//
// All paths are resolved below one root, the host's "/" as this process sees it ("/host" in a pod, "/" on the host itself). Symbolic links
// are resolved inside that root, as for a process of the host, so that an absolute link never leads into the container's own files. It is
// the only package of the driver that names those trees. It writes nothing but the links in /dev/char.
package hostfs
