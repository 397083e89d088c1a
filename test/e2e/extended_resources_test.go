package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationapi "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

const (
	controllerName     = "prism-controller"
	controllerSelector = "app.kubernetes.io/component=controller"
	// sharedConfig is a file of the device plugin whose replicas use another resource name.
	sharedConfig = `version: v1
sharing:
  timeSlicing:
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, rename: nvidia.com/%s, replicas: 10}
`
)

// TestExtendedResourcePod: the pod in the device plugin's README runs, and keeps its devices when the classes of its resource names are
// gone.
func TestExtendedResourcePod(t *testing.T) {
	needs(t, extendedResources)
	ns := inParallel(t, 1)
	ns.waitForNames(t, startLimit, "nvidia.com/gpu", "nvidia.com/mig-1g.10gb")
	ns.apply("extended-resource/gpu-pod.yaml")
	ns.do("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout="+startLimit.String(), "pod/gpu-pod")
	seen := regexp.MustCompile(`(?m)^GPU \d+: .* \(UUID: (GPU-[0-9a-f-]+)\)$`).FindAllStringSubmatch(ns.do("logs", "gpu-pod"), -1)
	require.Len(t, seen, 1)
	boards, err := ns.boards()
	require.NoError(t, err)
	assert.Contains(t, boards, seen[0][1])
	require.NoError(t, ns.silence())
}

// TestExtendedResourceNames: names come from every entry of the ConfigMap, requests for several shares are refused with the device plugin's
// text, and another controller takes over when the leader is killed.
func TestExtendedResourceNames(t *testing.T) {
	needs(t, extendedResources)
	c := open(t)
	c.addNames(t, "gpu.shared")
	ns := exclusive(t)
	ns.waitForNames(t, startLimit, "nvidia.com/gpu", "nvidia.com/gpu.shared")
	const tooLarge = "request for 'nvidia.com/gpu.shared: 2' too large: maximum request size for shared resources is 1"
	eventually(t, startLimit, func() error {
		err := ns.requests("nvidia.com/gpu.shared", 2)
		if err == nil || !strings.Contains(err.Error(), tooLarge) {
			return fmt.Errorf("the request was not refused as it should be: %w", err)
		}
		return nil
	})
	assert.NoError(t, ns.requests("nvidia.com/gpu.shared", 1))
	assert.NoError(t, ns.requests("nvidia.com/gpu", 2), "whole GPUs can be requested in any number")

	first := ns.leader(t, "")
	ns.kill(t, first)
	c.addNames(t, "gpu.slow")
	ns.waitForNames(t, startLimit, "nvidia.com/gpu", "nvidia.com/gpu.slow")
	assert.NotEqual(t, first, ns.leader(t, first))
	eventually(t, startLimit, func() error {
		classes, err := ns.resourceNames()
		if _, found := classes["nvidia.com/gpu.shared"]; err == nil && found {
			err = errors.New("the class of nvidia.com/gpu.shared still exists")
		}
		return err
	})
	eventually(t, startLimit, func() error { return ns.requests("nvidia.com/gpu.shared", 2) })
}

// TestExtendedResourceClass_Deleted_PodKeepsItsGPU: a pod keeps its GPU when the class of its allocation is deleted. The controller creates
// its own classes again.
func TestExtendedResourceClass_Deleted_PodKeepsItsGPU(t *testing.T) {
	needs(t, extendedResources)
	ns := exclusive(t)
	ns.waitForNames(t, startLimit, "nvidia.com/gpu")
	ns.apply("extended-resource/pod.yaml")
	pod := ns.ready("extended-resource")
	require.NotNil(t, pod.Status.ExtendedResourceClaimStatus)
	grants := ns.granted(pod.Status.ExtendedResourceClaimStatus.ResourceClaimName)
	classes, err := ns.resourceNames()
	require.NoError(t, err)
	ns.must(t, ns.kubectl("delete", "deviceclass", classes["nvidia.com/gpu"].Name)...)
	eventually(t, startLimit, func() error {
		again, err := ns.resourceNames()
		if err == nil && again["nvidia.com/gpu"].UID == classes["nvidia.com/gpu"].UID {
			err = fmt.Errorf("class %s is still the old one", classes["nvidia.com/gpu"].Name)
		}
		return err
	})
	ns.waitForNames(t, startLimit, "nvidia.com/gpu")
	ns.sees("extended-resource", "main", grants...)
	require.NoError(t, ns.silence())
}

// TestExtendedResourceController_Disabled_ClassesRemoved: the objects of the controller are removed with it, and no others.
func TestExtendedResourceController_Disabled_ClassesRemoved(t *testing.T) {
	needs(t, extendedResources)
	c := open(t)
	c.addNames(t, "gpu.shared")
	ns := exclusive(t)
	ns.waitForNames(t, startLimit, "nvidia.com/gpu", "nvidia.com/gpu.shared")
	c.helm(t, "upgrade", "prism", filepath.Join(c.root, "deployments/helm/prism"), "--reuse-values", "--set", "controller.enabled=false")
	eventually(t, startLimit, func() error {
		classes, err := ns.resourceNames()
		if names := slices.Sorted(maps.Keys(classes)); err == nil && !slices.Equal(names, []string{"nvidia.com/mig-1g.10gb"}) {
			err = fmt.Errorf("the names are %v", names)
		}
		return err
	})
	eventually(t, startLimit, func() error { return ns.requests("nvidia.com/gpu.shared", 2) })
}

// TestExtendedResourceTimeSlicing: a file of the device plugin works unchanged as a node's configuration. Two pods that request replicas
// with another name share a GPU with two replicas, and a third one waits. Replicas without another name are requested by the name of whole
// GPUs, one at a time.
func TestExtendedResourceTimeSlicing(t *testing.T) {
	needs(t, extendedResources)
	c := open(t)
	t.Cleanup(func() { c.advertises(t, c.gpus.size, startLimit); c.advertisesMIG(t, startLimit) })
	c.entry(t, sharedFile)
	ns := migExclusive(t)
	ns.configured(t, entryName)
	eventually(t, startLimit, func() error {
		n, err := ns.advertised("timeslice")
		if err == nil && n != ns.gpus.size {
			err = fmt.Errorf("%d GPUs are advertised as shares", n)
		}
		return errors.Join(err, ns.advertisesNo("gpu"))
	})
	ns.waitForNames(t, startLimit, "nvidia.com/gpu", "nvidia.com/gpu.shared")
	ns.parallel(ns.applyPodByPod("extended-resource/shared-job.yaml", 2), 3)
	var running, pending []string
	eventually(t, startLimit, func() error {
		if running, pending = ns.podsOf("shared"); len(pending) != 1 {
			return fmt.Errorf("%d pods of the job are pending, not 1", len(pending))
		}
		return nil
	})
	require.Len(t, running, 2)
	assert.Contains(t, ns.event(pending[0], "FailedScheduling", startLimit), "cannot allocate all claims")
	gpu := regexp.QuoteMeta(ns.mustPartitions(t, 7).UUID)
	for _, pod := range running {
		assert.Regexp(t, `^GPU 0: .* \(UUID: `+gpu+`\)\n$`, ns.do("logs", pod))
	}
	ns.do("exec", running[0], "--", "touch", "/tmp/end")
	ns.do("wait", "--for=condition=Ready", "--timeout="+startLimit.String(), "pod/"+pending[0])

	has := map[string]int{}
	for i := range 3 {
		pod := fmt.Sprintf("share-%d", i)
		ns.create(limited(pod, "nvidia.com/gpu", 1))
		grants := ns.requested(pod)
		assert.Equal(t, "timeslice", grants[0].Type)
		assert.NotEqual(t, 7, grants[0].Index)
		has[grants[0].UUID]++
	}
	assert.ElementsMatch(t, []int{2, 1}, slices.Collect(maps.Values(has)), "one GPU is full before the next is used")
	require.NoError(t, ns.silence())
	ns.create(limited("greedy", "nvidia.com/gpu", 2))
	assert.Contains(t, ns.event("greedy", prepareFailed, startLimit),
		"request for 'nvidia.com/gpu: 2' too large: maximum request size for shared resources is 1")
}

// TestExtendedResourceMIG: a pod requests a MIG device by the resource name in the controller's class.
func TestExtendedResourceMIG(t *testing.T) {
	needs(t, extendedResources)
	ns := migInParallel(t)
	const name = "nvidia.com/mig-2g.20gb"
	ns.waitForNames(t, startLimit, name)
	classes, err := ns.resourceNames()
	require.NoError(t, err)
	require.Equal(t, controllerName, classes[name].Labels["app.kubernetes.io/managed-by"])
	ns.create(limited("mig", name, 1))
	grants := ns.requested("mig")
	assert.Equal(t, "2g.20gb", grants[0].Profile)
	require.NoError(t, ns.silence())
}

// TestExtendedResourceMIGStrategySingle: if the configuration says so, nvidia.com/gpu is a MIG device.
func TestExtendedResourceMIGStrategySingle(t *testing.T) {
	needs(t, extendedResources)
	ns := migExclusive(t)
	before, err := ns.resourceNames()
	require.NoError(t, err)
	back := ns.configure(t, "modes={mig}", "mig.profiles={3g.40gb}", "flags.migStrategy=single")
	eventually(t, startLimit, func() error { return ns.advertisesNo("gpu") })
	eventually(t, startLimit, func() error {
		classes, err := ns.resourceNames()
		if err == nil && reflect.DeepEqual(classes["nvidia.com/gpu"].Spec, before["nvidia.com/gpu"].Spec) {
			err = errors.New("the class of nvidia.com/gpu is as it was")
		}
		return err
	})
	ns.apply("extended-resource/gpu-pod.yaml")
	ns.do("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout="+startLimit.String(), "pod/gpu-pod")
	assert.Regexp(t, `^GPU 0: .*\n +MIG 3g\.40gb +Device +0: \(UUID: MIG-[0-9a-f-]+\)\n$`, ns.do("logs", "gpu-pod"))
	require.NoError(t, ns.silence())
	ns.delete("pod", "gpu-pod")
	back()
	ns.advertises(t, ns.gpus.size, startLimit)
	ns.advertisesMIG(t, startLimit)
}

const (
	// entryName is the entry that tests add to the node configurations.
	entryName = "legacy"
	// sharedFile is a file of the device plugin with both kinds of names.
	sharedFile = `version: v1
sharing:
  timeSlicing:
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, rename: nvidia.com/gpu.shared, replicas: 2, devices: [7]}
    - {name: nvidia.com/gpu, replicas: 2, devices: [0, 1, 2, 3, 4, 5, 6]}
`
)

// requested waits for a pod that requests a resource name. It returns its one device, and checks that the pod sees exactly that device.
func (ns *namespace) requested(pod string) []grant {
	ns.t.Helper()
	status := ns.ready(pod).Status.ExtendedResourceClaimStatus
	require.NotNil(ns.t, status)
	grants := ns.granted(status.ResourceClaimName)
	require.Len(ns.t, grants, 1)
	ns.sees(pod, "main", grants...)
	return grants
}

// addNames adds an entry to the node configurations that no node uses, whose replicas have this name.
func (c *cluster) addNames(t *testing.T, name string) {
	t.Helper()
	c.entry(t, fmt.Sprintf(sharedConfig, name))
}

// entry adds an entry to the node configurations and starts two controllers, until the end of the test.
func (c *cluster) entry(t *testing.T, text string) {
	t.Helper()
	values, err := json.Marshal(map[string]any{
		"controller": map[string]any{"replicas": 2},
		"config":     map[string]any{"default": "e2e", "map": map[string]any{entryName: text}},
	})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, values, 0o600))
	var history []struct {
		Revision int `json:"revision"`
	}
	line := []string{filepath.Join(c.variable("PATH"), "helm"), "--kubeconfig", c.variable("KUBECONFIG"), "--namespace", system}
	require.NoError(t, json.Unmarshal([]byte(c.must(t, append(line, "history", "prism", "--max", "1", "--output", "json")...)), &history))
	require.Len(t, history, 1)
	t.Cleanup(func() {
		c.helm(t, "rollback", "prism", strconv.Itoa(history[0].Revision))
		c.plugin(t)
	})
	c.helm(t, "upgrade", "prism", filepath.Join(c.root, "deployments/helm/prism"), "--reuse-values", "--values", file)
	c.plugin(t)
}

// resourceNames returns the classes with resource names.
func (c *cluster) resourceNames() (map[string]resourceapi.DeviceClass, error) {
	var list resourceapi.DeviceClassList
	err := c.get(&list, "deviceclasses")
	found := map[string]resourceapi.DeviceClass{}
	for _, class := range list.Items {
		if class.Spec.ExtendedResourceName != nil {
			found[*class.Spec.ExtendedResourceName] = class
		}
	}
	return found, err
}

// waitForNames waits until classes with these resource names exist.
func (c *cluster) waitForNames(t *testing.T, within time.Duration, names ...string) {
	t.Helper()
	eventually(t, within, func() error {
		classes, err := c.resourceNames()
		for _, name := range names {
			if _, found := classes[name]; err == nil && !found {
				err = fmt.Errorf("missing class of resource name %s", name)
			}
		}
		return err
	})
}

// limited returns a pod with a limit of n of an extended resource.
func limited(name, resource string, n int) workload {
	return workload{name: name, limits: amounts{corev1.ResourceName(resource): strconv.Itoa(n)}}
}

// requests returns the API server's answer to a dry run of a pod that requests n of a resource in its second container.
func (ns *namespace) requests(resource string, n int) error {
	w := limited("request", resource, n)
	pod := w.pod()
	pod.Spec.Containers = append([]corev1.Container{{Name: "first", Image: testImage}}, pod.Spec.Containers...)
	text, err := json.Marshal(pod)
	require.NoError(ns.t, err)
	_, err = ns.run(string(text), ns.kubectl("--namespace", ns.name, "create", "--dry-run=server", "--filename=-")...)
	return err
}

// kill stops the leading controller as a crash of its node would: it does not release the lease, and is not restarted.
func (c *cluster) kill(t *testing.T, leader string) {
	t.Helper()
	var pod corev1.Pod
	require.NoError(t, c.get(&pod, "pod", leader, "--namespace", system))
	c.must(t, c.onNode("kill", "-KILL", c.pid(t, &pod))...)
	var lease coordinationapi.Lease // read before another controller may take it
	require.NoError(t, c.get(&lease, "lease", controllerName, "--namespace", system))
	c.must(t, c.kubectl("delete", "pod", "--namespace", system, "--grace-period=0", "--force", leader)...)
	require.NotNil(t, lease.Spec.HolderIdentity)
	require.Contains(t, *lease.Spec.HolderIdentity, leader+"_", "the lease was released")
}

// leader waits for another leading controller than before.
func (c *cluster) leader(t *testing.T, before string) string {
	t.Helper()
	var leader string
	eventually(t, startLimit, func() error {
		var lease coordinationapi.Lease
		if err := c.get(&lease, "lease", controllerName, "--namespace", system); err != nil {
			return err
		}
		if lease.Spec.HolderIdentity != nil {
			leader, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
		}
		if leader == "" || leader == before {
			return fmt.Errorf("the lead has %q", leader)
		}
		var pods corev1.PodList
		if err := c.get(&pods, "pods", "--namespace", system, "--selector", controllerSelector); err != nil {
			return err
		}
		if !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == leader }) {
			return fmt.Errorf("missing controller %s", leader)
		}
		return nil
	})
	return leader
}
