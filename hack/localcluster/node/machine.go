// Package node turns a set of fresh namespaces into a separate machine: private host paths at their default places, its own /dev, /run,
// boot id and hardware tables, a container runtime and a kubelet.
package node

import (
	"fmt"
	"path/filepath"
)

// Machine is the complete input of the first process of a node. The host writes it, and the process reads it.
type Machine struct {
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
	Index   int    `json:"index"`
	// Dir is the node's folder in the cluster's state; it survives a reboot of the node.
	Dir string `json:"dir"`
	// Programs is the folder that comes first in PATH, CNI the folder of the network plugins.
	Programs string `json:"programs"`
	CNI      string `json:"cni"`
	// BootCommands are run by a shell at every boot, before the container runtime starts.
	BootCommands []string `json:"bootCommands,omitempty"`
	// KubeletConfig are additional fields of the kubelet's configuration, such as "cpuManagerPolicy: static".
	KubeletConfig []string `json:"kubeletConfig,omitempty"`
	// HostMounts names the machine's mount namespace, in which a boot is refused.
	HostMounts string `json:"hostMounts"`
}

// Addresses of a node on the cluster's bridge and of its pods.
const (
	bridgePrefix = "172.30.0."
	firstHost    = 10
	// MaxNodes is limited by the third byte of the pod networks.
	MaxNodes = 100
)

// Name returns the name of node number i.
func Name(i int) string { return fmt.Sprintf("n%d", i) }

// Address returns the address of node number i.
func Address(i int) string { return fmt.Sprintf("%s%d", bridgePrefix, firstHost+i) }

// PodSubnet returns the network of the pods of node number i.
func PodSubnet(i int) string { return fmt.Sprintf("10.244.%d.0/24", firstHost+i) }

// Control is the path of the supervisor's socket.
func (m Machine) Control() string { return filepath.Join(m.Dir, "control") }

// BootLog receives the output of the first process and the boot commands.
func (m Machine) BootLog() string { return filepath.Join(m.Dir, "log", "boot.log") }

// Log returns the log file of a service of the node.
func (m Machine) Log(service string) string { return filepath.Join(m.Dir, "log", service+".log") }

// StateDir is the folder for files of boot commands ($NODE_STATE).
func (m Machine) StateDir() string { return filepath.Join(m.Dir, "state") }

// KubeletDir is the node's /var/lib/kubelet.
func (m Machine) KubeletDir() string { return filepath.Join(m.Dir, "kubelet") }

// Group is the node's control group.
func (m Machine) Group() string { return filepath.Join("/prism", m.Cluster, m.Name) }

// Environment is the environment of every program of the node.
func (m Machine) Environment() []string {
	return []string{
		"PATH=" + m.Programs + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"NODE_NAME=" + m.Name,
		fmt.Sprintf("NODE_INDEX=%d", m.Index),
		"NODE_STATE=" + m.StateDir(),
	}
}
