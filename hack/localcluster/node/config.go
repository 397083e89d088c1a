package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// File names below Machine.Dir, where the host writes the inputs of the node.
const (
	kubeletConfigFile    = "kubelet.yaml"
	containerdConfigFile = "containerd.toml"
	networkDir           = "cni-net"
)

// kubeletConfig: kubelets refuse control groups version 1 and swap by default. The disk thresholds are low because the disk is shared with
// the rest of the machine, and images are never collected because nothing can pull them again. The cluster has no name service: a pod
// queries itself and is refused at once; without an address every pod would get an Event, and another address would cause a timeout.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[1]s/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: %[1]s/kubelet-%[2]s.crt
tlsPrivateKeyFile: %[1]s/kubelet-%[2]s.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: %[3]s
failCgroupV1: false
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [127.0.0.1]
serializeImagePulls: false
imageGCHighThresholdPercent: 100
evictionHard: {nodefs.available: 100Mi, imagefs.available: 100Mi, memory.available: 50Mi}
`

const containerdConfig = `version = 4
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "%s"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
`

const networkConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": false, "ipam": {
  "type": "host-local", "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// WriteConfig creates the node's folder with the configuration of its programs. pki is the folder of the cluster's certificates, pauseImage
// the image whose container holds a pod's namespaces.
func (m Machine) WriteConfig(pki, pauseImage string) error {
	for _, dir := range []string{"log", "state", networkDir} {
		if err := os.MkdirAll(filepath.Join(m.Dir, dir), 0o755); err != nil {
			return fmt.Errorf("making the folders of %s: %w", m.Name, err)
		}
	}
	files := map[string]string{
		kubeletConfigFile:                             fmt.Sprintf(kubeletConfig, pki, m.Name, m.Group()) + strings.Join(append(m.KubeletConfig, ""), "\n"),
		containerdConfigFile:                          fmt.Sprintf(containerdConfig, pauseImage),
		filepath.Join(networkDir, "10-pods.conflist"): fmt.Sprintf(networkConfig, PodSubnet(m.Index)),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing the configuration of %s: %w", m.Name, err)
		}
	}
	return nil
}

// KubeletArgs are the kubelet's arguments; every path is the default path.
func (m Machine) KubeletArgs(kubeconfig string) []string {
	return []string{
		filepath.Join(m.Programs, "kubelet"),
		"--config=" + filepath.Join(m.Dir, kubeletConfigFile),
		"--kubeconfig=" + kubeconfig,
		"--hostname-override=" + m.Name,
		"--node-ip=" + Address(m.Index),
		"--v=2",
	}
}

// ContainerdArgs are containerd's arguments.
func (m Machine) ContainerdArgs() []string {
	return []string{filepath.Join(m.Programs, "containerd"), "--config", filepath.Join(m.Dir, containerdConfigFile)}
}

// Major numbers that the driver gets at load time, from the range for dynamic allocation.
const (
	firstDynamicMajor = 235
	lastDynamicMajor  = 244
)

// deviceTable adds the driver's lines to the text of /proc/devices, as on a machine with the loaded driver. It skips major numbers that are
// in use; a machine with the driver keeps its own lines.
func deviceTable(devices string) string {
	head, tail, _ := strings.Cut(devices, "\nBlock devices:")
	taken := map[string]bool{}
	for line := range strings.Lines(head) {
		if fields := strings.Fields(line); len(fields) == 2 {
			taken[fields[0]], taken[fields[1]] = true, true
		}
	}
	var added strings.Builder
	for _, name := range []string{"nvidia", "nvidia-modeset", "nvidiactl"} {
		if !taken[name] {
			fmt.Fprintf(&added, "195 %s\n", name)
		}
	}
	major := firstDynamicMajor
	for _, name := range []string{"nvidia-uvm", "nvidia-caps"} {
		if taken[name] {
			continue
		}
		for taken[fmt.Sprint(major)] && major < lastDynamicMajor {
			major++
		}
		fmt.Fprintf(&added, "%d %s\n", major, name)
		major++
	}
	return strings.TrimRight(head, "\n") + "\n" + added.String() + "\nBlock devices:" + tail
}
