package hostfs

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// usualSockets are where container runtimes serve CRI: containerd, CRI-O, the containerd of K3s and RKE2, of k0s and of MicroK8s, cri-dockerd.
var usualSockets = []string{
	"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock", "/run/cri-dockerd.sock",
}

// RuntimeSocket returns the path, as this process sees it, of the container runtime's socket: of the host's path that is set, or of the first of
// the usual ones that is there. Links are the host's: /var/run is an absolute one on most.
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
