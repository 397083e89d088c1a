package plugin

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// ownDev is a host whose driver uses its own dev/; the host's /dev lacks its nodes.
type ownDev struct {
	wiredHost
	missing []string
}

func (h ownDev) FindDriver(explicit string) (hostfs.DriverRoot, error) {
	root, err := h.wiredHost.FindDriver(explicit)
	root.DevHostPath = port.DriverRoot
	return root, err
}

func (h ownDev) CharDevice(path string) (hostfs.CharDevice, error) {
	below, driver := strings.CutPrefix(path, port.DriverRoot)
	for _, missing := range h.missing {
		if missing == path {
			return hostfs.CharDevice{}, gpu.ErrNotFound
		}
	}
	device, err := h.wiredHost.CharDevice(below)
	if !driver {
		return h.wiredHost.CharDevice(path)
	}
	device.Path = path
	return device, err
}

// TestPrepare_UserNamespaceAndDriverDev_RefusedWithoutHostNode: if the host's /dev contains the device nodes, the claim is prepared with
// these. If not, only a pod with a user namespace that crun does not start is refused.
func TestPrepare_UserNamespaceAndDriverDev_RefusedWithoutHostNode(t *testing.T) {
	t.Parallel()
	const refused = "pod train has hostUsers: false, for which runc takes device nodes from /dev of the node, and that has none of the same device as " +
		"/run/nvidia/driver/dev/nvidia0; create it there with nvidia-modprobe, or leave hostUsers out of the pod, and recreate the pod (not retryable)"
	for name, c := range map[string]struct {
		missing   []string
		hostUsers bool
		class     string
		silent    bool   // the container runtime
		want      string // of the GPU's device node, on the host
	}{
		"host users, with a node in /dev":            {nil, true, "", false, ""},
		"host users, without":                        {[]string{"/dev/nvidia0"}, true, "", false, "/run/nvidia/driver/dev/nvidia0"},
		"user namespace, with a node in /dev":        {nil, false, "", false, ""},
		"user namespace, another GPU's is missing":   {[]string{"/dev/nvidia1"}, false, "", false, ""},
		"user namespace, without":                    {[]string{"/dev/nvidia0"}, false, "", false, refused},
		"user namespace and crun, without":           {[]string{"/dev/nvidia0"}, false, "small", false, "/run/nvidia/driver/dev/nvidia0"},
		"user namespace and silent runtime, without": {[]string{"/dev/nvidia0"}, false, "small", true, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newWired(t)
			host, _ := n.adapters.Host.(wiredHost)
			n.adapters.Host = ownDev{host, c.missing}
			n.adapters.Runtime = &fakeRuntime{crun: []string{"crun"}, silent: c.silent}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", UID: "pod-1"}, Spec: corev1.PodSpec{HostUsers: &c.hostUsers}}
			if c.class != "" {
				pod.Spec.RuntimeClassName = &c.class
			}
			require.NoError(t, n.client.Tracker().Add(pod))
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.cfg.NodeName}}
			node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.4.0"
			require.NoError(t, n.client.Tracker().Add(node))
			require.NoError(t, n.client.Tracker().Add(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Handler: "crun"}))
			p := n.build(t)
			rc := n.claim(t, "a", 0)
			rc.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "train", UID: "pod-1"}}
			rc.UID = claimUID
			err := prepared(t.Context(), p, rc)
			if c.want == refused {
				require.ErrorContains(t, err, refused)
				return
			}
			require.NoError(t, err)
			spec := specOf(t, n.cfg)
			require.Len(t, spec.Devices[0].ContainerEdits.DeviceNodes, 1)
			assert.Equal(t, c.want, spec.Devices[0].ContainerEdits.DeviceNodes[0].HostPath)
		})
	}
}
