// Package allocation finds out which container has which device: from the plugin's records, the kubelet's pod resources, the runtime's
// containers and the cgroups of processes.
package allocation
