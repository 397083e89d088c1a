package hostfs

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// usualSockets are the CRI sockets of container runtimes: containerd, CRI-O, the containerd of K3s and RKE2, of k0s and of MicroK8s,
// cri-dockerd.
var usualSockets = []string{
	"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock", "/run/cri-dockerd.sock",
}

// RuntimeSocket returns this process's path to the container runtime's socket: at the host's path set, or, if that is empty, the first
// existing one of the usual sockets. It follows links of the host, such as /var/run, which is an absolute link on most hosts.
func (f *FS) RuntimeSocket(set string) (string, error) {
	if set != "" {
		return f.resolve(set)
	}
	for _, usual := range usualSockets {
		path, err := f.resolve(usual)
		if err != nil {
			return "", err
		}
		if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("no container runtime serves at %s below %s: set its socket", strings.Join(usualSockets, ", "), f.root)
}
