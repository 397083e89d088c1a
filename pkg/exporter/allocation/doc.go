// Package allocation finds the devices of containers: from the plugin's records, the kubelet's pod resources, the runtime's containers and
// the cgroups of processes.
//
// A record lists the devices of a claim, the kubelet the containers of the claim, the runtime the id of a container, and /proc the
// container of a process. Each source may be unavailable for a while. Earlier information then stays as long as the claim's record.
package allocation
