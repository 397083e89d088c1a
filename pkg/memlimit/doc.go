// Package memlimit limits the GPU memory of containers with time-sliced shares to what their claims requested. The runtime starts prism-hook
// before the container, which asks the plugin on a socket; the driver holds the limit of the container's cgroup and forgets it with that.
package memlimit
