package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// amounts are the requests or the limits of a container.
type amounts = map[corev1.ResourceName]string

// A container that shares CPUs requests less than one. With equal requests and limits, it gets exclusive CPUs.
var (
	partOfCPU = amounts{corev1.ResourceCPU: "50m"}
	wholeCPU  = amounts{corev1.ResourceCPU: "1", corev1.ResourceMemory: "64Mi"}
)

// TestCPUManager_StaticPolicy_GPUStaysThroughCgroupUpdates: the kubelet updates a container's cgroup when other pods get CPUs. Its device
// rules must not change with that. The test runs on a separate cluster, whose kubelets use the static policy.
func TestCPUManager_StaticPolicy_GPUStaysThroughCgroupUpdates(t *testing.T) {
	c := open(t)
	if runtime.NumCPU() < 2 {
		t.Skip("the kubelet keeps one CPU, and there is no other one for a pod")
	}
	require.Equal(t, "static", c.cpuManagerPolicy(t), "boot the cluster with the KUBELET_CONFIG of hack/e2e.sh")
	ns := exclusive(t)
	shared := ns.withCPUs(workload{name: "shared", requests: partOfCPU})
	all := ns.cpus("shared")

	pinned := ns.withCPUs(workload{name: "pinned", requests: wholeCPU, limits: wholeCPU})
	its := ns.cpus("pinned")
	require.NotEqual(t, all, its)
	eventually(t, startLimit, func() error { return ns.hasCPUs("shared", all, false) })
	assert.NotContains(t, ns.cpus("shared"), its, "it may run on all CPUs but the other pod's")
	eventually(t, startLimit, func() error { return ns.updated("shared") })
	ns.opens("shared", shared)
	ns.sees("shared", "main", shared)

	// A container with exclusive CPUs keeps them. A kubelet that starts again updates its cgroup.
	ns.must(t, ns.localcluster("restart", nodeName, "kubelet")...)
	eventually(t, startLimit, func() error { return ns.updated("pinned") })
	assert.Equal(t, its, ns.cpus("pinned"))
	ns.opens("pinned", pinned)
	ns.sees("pinned", "main", pinned)

	ns.delete("pod/pinned")
	eventually(t, startLimit, func() error { return ns.hasCPUs("shared", all, true) })
	ns.opens("shared", shared)
	ns.sees("shared", "main", shared)
}

// cpuManagerPolicy returns the policy of the first node's kubelet.
func (c *cluster) cpuManagerPolicy(t *testing.T) string {
	t.Helper()
	var config struct {
		KubeletConfig struct{ CPUManagerPolicy string } `json:"kubeletconfig"`
	}
	out := c.must(t, c.kubectl("get", "--raw", "/api/v1/nodes/"+nodeName+"/proxy/configz")...)
	require.NoError(t, json.Unmarshal([]byte(out), &config))
	return config.KubeletConfig.CPUManagerPolicy
}

// withCPUs starts a pod on the first node and returns its GPU, which the pod can open.
func (ns *namespace) withCPUs(w workload) grant {
	ns.t.Helper()
	w.node, w.ref, w.class = nodeName, "gpu", gpuClass
	ns.create(w)
	grants := ns.grantedTo(ns.ready(w.name), "gpu")
	require.Len(ns.t, grants, 1)
	ns.opens(w.name, grants[0])
	return grants[0]
}

// cpus returns the CPUs of the pod's first process in the kernel's format: "0-1".
func (ns *namespace) cpus(pod string) string {
	ns.t.Helper()
	return strings.TrimSpace(ns.do("exec", pod, "--", "sed", "-n", "s/^Cpus_allowed_list:[[:space:]]*//p", "/proc/1/status"))
}

// hasCPUs returns an error unless the pod has these CPUs or, without want, others.
func (ns *namespace) hasCPUs(pod, cpus string, want bool) error {
	if has := ns.cpus(pod); (has == cpus) != want {
		return fmt.Errorf("pod %s has CPUs %s", pod, has)
	}
	return nil
}

// updated returns an error until the container runtime has updated the cgroup of the pod's container.
func (ns *namespace) updated(pod string) error {
	var p corev1.Pod
	if err := ns.read(&p, "pod", pod); err != nil {
		return err
	}
	log, err := ns.run("", ns.localcluster("logs", nodeName, "containerd")...)
	if err != nil {
		return err
	}
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	for line := range strings.Lines(log) {
		if strings.Contains(line, "UpdateContainerResources for") && strings.Contains(line, id) && strings.Contains(line, "returns successfully") {
			return nil
		}
	}
	return errors.New("the control group of pod " + pod + " was not updated")
}

// openScript creates a device node for each of its arguments, in addition to the existing ones, and prints the result of opening each.
const openScript = `
for minor in "$@"; do rm -f "/tmp/minor$minor"; mknod "/tmp/minor$minor" c 195 "$minor"; done
for n in /dev/nvidia* /tmp/minor*; do
	[ -c "$n" ] || continue
	if error=$(head -c 0 "$n" 2>&1); then echo "$n opened"; else echo "$n ${error##*: }"; fi
done
`

// opens checks that the pod can open the device nodes of its GPU only, although it may create others. A simulated GPU has no driver behind
// its nodes: after the cgroup has allowed the access, the kernel reports the missing driver.
func (ns *namespace) opens(pod string, g grant) {
	ns.t.Helper()
	boards, err := ns.boards()
	require.NoError(ns.t, err)
	args := []string{"exec", pod, "--", "sh", "-c", openScript, "sh"}
	for _, b := range boards {
		args = append(args, fmt.Sprint(b.Minor))
	}
	const forbidden = "Operation not permitted"
	allowed := []string{"opened", "No such device or address", "No such device"}
	found := 0
	for line := range strings.Lines(ns.do(args...)) {
		node, how, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(node, "/tmp/") && node != fmt.Sprintf("/tmp/minor%d", g.Minor) {
			assert.Equal(ns.t, forbidden, how, "opening %s in pod %s, which has %d", node, pod, g.Minor)
			continue
		}
		found++
		assert.True(ns.t, slices.Contains(allowed, how), "opening %s in pod %s: %s", node, pod, how)
	}
	assert.GreaterOrEqual(ns.t, found, 4, "device nodes that pod %s may open", pod)
}
