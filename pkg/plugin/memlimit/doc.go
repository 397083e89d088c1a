// Package memlimit limits the GPU memory of containers with time-sliced shares to the amount that their claims requested. Before the
// container, the runtime starts prism-hook, which asks the plugin on a socket; the driver holds the limit of the container's cgroup and
// forgets it together with the cgroup.
package memlimit
