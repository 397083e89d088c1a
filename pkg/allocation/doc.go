// Package allocation finds out which container has which device: from the plugin's records, the kubelet's pod resources, the runtime's
// containers and the cgroups of processes.
//
// A record says which devices a claim has, the kubelet which containers have the claim, the runtime which id a container has, and /proc in
// which container a process is. Each is a source that may be away for a while. What was known before stays then as long as the claim's record
// does.
package allocation
