package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// doesNotFit is the exit status of kubectl prism explain about a pod that fits on no node.
	doesNotFit = 3
	// viewerRole and viewerAllRole are the chart's ClusterRoles for users of kubectl prism, which does not know the release.
	viewerRole, viewerAllRole = "-gpus-view", "-gpus-view-all"
)

// TestExplain_RandomPods_AsScheduler: before a pod is created, explain says whether it fits. The scheduler decides the same.
func TestExplain_RandomPods_AsScheduler(t *testing.T) {
	needs(t, consumableCapacity)
	ns := migExclusive(t)
	for _, profile := range randomProfiles {
		ns.hasClasses(t, randomClass(profile))
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 38))
	const pods = 30
	var running []string
	fitted, waited := 0, 0
	for i := range pods {
		if len(running) > 0 && random.IntN(3) == 0 {
			at := random.IntN(len(running))
			ns.deleteWithClaim(running[at], "gpu")
			running = append(running[:at], running[at+1:]...)
			eventually(t, startLimit, ns.noTaints)
		}
		w := workload{name: fmt.Sprintf("random-%d", i), ref: "gpu", request: randomRequest(random)}
		fits, text := ns.fitsNow(&w)
		ns.create(w)
		if fits {
			fitted++
			eventually(t, startLimit, func() error { return ns.assigned(w.name) })
			running = append(running, w.name)
			continue
		}
		waited++
		t.Logf("%s: %s", w.class, text)
		ns.waits(w.name)
		status, text, complaints := ns.prismStatus(ns.prism("explain", "pod", w.name))
		assert.Equal(t, doesNotFit, status, "%s\n%s", text, complaints)
		assert.Contains(t, text, w.class)
		ns.deleteWithClaim(w.name, "gpu")
	}
	t.Logf("%d pods fit, %d wait", fitted, waited)
	assert.Positive(t, fitted)
	assert.Positive(t, waited)
}

// randomProfiles are the profiles of random requests.
var randomProfiles = []string{"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}

func randomClass(profile string) string {
	return "mig-" + strings.ReplaceAll(profile, ".", "-") + "." + driverName
}

// randomRequest is a request that the scheduler may or may not be able to satisfy.
func randomRequest(random *rand.Rand) request {
	const attributes = `device.attributes["gpu.prism.dev"].`
	profile := randomProfiles[random.IntN(len(randomProfiles))]
	switch random.IntN(7) {
	case 0:
		return request{class: gpuClass, count: int64(1 + random.IntN(3))}
	case 1:
		return request{class: gpuClass, selectors: []string{fmt.Sprintf(attributes+"index == %d", firstMIG+random.IntN(nodeGPUs-firstMIG))}}
	case 2:
		return request{class: "mps." + driverName, capacity: map[resourceapi.QualifiedName]string{"memory": fmt.Sprintf("%dGi", 10+random.IntN(40))}}
	case 3:
		return request{class: "timeslice." + driverName}
	case 4:
		capacity := resourceapi.QualifiedName(driverName + "/p" + strings.ReplaceAll(profile, ".", ""))
		return request{class: byCapacityClass, capacity: map[resourceapi.QualifiedName]string{capacity: "1"}}
	case 5:
		return request{class: "mig." + driverName, selectors: []string{fmt.Sprintf(attributes+"profile == %q", profile)}, count: int64(1 + random.IntN(2))}
	default:
		return request{class: randomClass(profile)}
	}
}

// fitsNow asks whether a pod would fit that does not exist.
func (ns *namespace) fitsNow(w *workload) (fits bool, text string) {
	ns.t.Helper()
	list := &corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for _, object := range w.objects() {
		list.Items = append(list.Items, runtime.RawExtension{Object: object})
	}
	manifest, err := json.Marshal(list)
	require.NoError(ns.t, err)
	file := filepath.Join(ns.t.TempDir(), "pod.json")
	require.NoError(ns.t, os.WriteFile(file, manifest, 0o600))
	status, text, complaints := ns.prismStatus(ns.prism("explain", "-f", file))
	require.Contains(ns.t, []int{0, doesNotFit}, status, "%s\n%s", text, complaints)
	return status == 0, text
}

// prismStatus runs a command line, and returns its exit status, stdout, and the error with its stderr.
func (c *cluster) prismStatus(line []string) (status int, text, complaints string) {
	text, err := c.run("", line...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, text, ""
	case errors.As(err, &exit):
		return exit.ExitCode(), text, err.Error()
	}
	return -1, text, err.Error()
}

// noTaints returns an error while a device has a taint.
func (c *cluster) noTaints() error {
	published, err := c.resourceSlices()
	for i := range published {
		for _, d := range published[i].Spec.Devices {
			for _, taint := range d.Taints {
				if taint.Effect != resourceapi.DeviceTaintEffectNone {
					err = errors.Join(err, fmt.Errorf("device %s has the taint %s=%s", d.Name, taint.Key, taint.Value))
				}
			}
		}
	}
	return err
}

// TestExplain_FewRights_MissingOnesNamed: a user with the role view in one namespace sees which ClusterRole an administrator can bind.
// With the role for GPUs the user sees why the pod waits, and not by whose claims.
func TestExplain_FewRights_MissingOnesNamed(t *testing.T) {
	needs(t, partitionableDevices)
	ns := migExclusive(t)
	ns.createMIG("holds-6", "7g.80gb", firstMIG)
	ns.createMIG("holds-7", "7g.80gb", firstMIG+1)
	for _, pod := range []string{"holds-6", "holds-7"} {
		eventually(t, startLimit, func() error { return ns.assigned(pod) })
	}
	other := newNamespace(t, ns.cluster)
	other.create(migPod("waits", profileClasses[0]))
	other.waits("waits")

	user := other.userWith("viewer", "view", other)
	explain := append([]string{filepath.Join(ns.root, "bin/kubectl-prism")}, user[1:]...)
	explain = append(explain, "--namespace", other.name, "explain", "pod", "waits")
	_, text, complaints := ns.prismStatus(explain)
	t.Log(text, complaints)
	assert.Contains(t, complaints, "resourceslices")
	assert.Contains(t, complaints, viewerRole+" ")

	bind := func(role string) {
		name := other.name + role
		ns.must(t, ns.kubectl("create", "clusterrolebinding", name, "--clusterrole", "prism"+role, "--serviceaccount", other.name+":viewer")...)
		t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "clusterrolebinding", name)...) })
	}
	bind(viewerRole)
	status, text, complaints := ns.prismStatus(explain)
	t.Log(text, complaints)
	assert.Equal(t, doesNotFit, status)
	assert.Contains(t, complaints, "*-gpus-view-all")
	assert.NotContains(t, complaints, "*-gpus-view;")
	assert.NotContains(t, text, "holds-", "claims of another namespace")
	bind(viewerAllRole)
	status, text, complaints = ns.prismStatus(explain)
	t.Log(text, complaints)
	assert.Equal(t, doesNotFit, status)
	assert.NotContains(t, complaints, "Missing right")
	assert.Contains(t, text, ns.name+"/holds-")
}

// TestExplain_DeviceTaintRule_Named: a rule is in no ResourceSlice, and explain names its taint all the same.
func TestExplain_DeviceTaintRule_Named(t *testing.T) {
	needs(t, deviceTaintRules)
	ns := exclusive(t)
	const index = 0
	rule := fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: e2e-broken}
spec:
  deviceSelector: {driver: %s, pool: %s, device: %s}
  taint: {key: example.com/broken, value: fan, effect: NoSchedule}
`, driverName, nodeName, ns.deviceAt(index))
	t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "--ignore-not-found", "devicetaintrule", "e2e-broken")...) })
	require.NoError(t, ns.createText(rule))
	ns.create(workload{name: "waits", ref: "gpu", request: request{
		class: gpuClass, selectors: []string{fmt.Sprintf(`device.attributes["gpu.prism.dev"].index == %d`, index)},
	}})
	ns.waits("waits")
	status, text, complaints := ns.prismStatus(ns.prism("explain", "pod", "waits"))
	t.Log(text, complaints)
	assert.Equal(t, doesNotFit, status)
	assert.Contains(t, text, "Taint")
	assert.Contains(t, text, "example.com/broken=fan")
	ns.must(t, ns.kubectl("delete", "devicetaintrule", "e2e-broken")...)
	ns.ready("waits")
}

// TestDefragment_CommandsRun_PodGetsItsDevice: a pod of a Deployment is in the way on one GPU, and a pod without controller on the other. The
// plan moves the first, and its commands, run by a shell, let the waiting pod run.
func TestDefragment_CommandsRun_PodGetsItsDevice(t *testing.T) {
	needs(t, deviceTaintRules)
	ns := migExclusive(t)
	largest := randomClass("7g.80gb")
	ns.hasClasses(t, largest)
	ns.createDeployment("blocks", migPod("blocks", profileClasses[0]))
	before := ns.podOf("blocks", "")
	has := ns.grantedTo(ns.ready(before), "mig")[0]
	other := 2*firstMIG + 1 - has.Index // of the two GPUs
	ns.createMIG("stays", "1g.10gb", other)
	ns.migDevice("stays")
	ns.create(migPod("waits", largest))
	ns.waits("waits")

	assert.Zero(t, ns.capacityOf(largest))
	t.Log(ns.must(t, ns.prism("defragment", "waits")...))
	file := filepath.Join(t.TempDir(), "plan.sh")
	require.NoError(t, os.WriteFile(file, []byte(ns.must(t, ns.prism("defragment", "waits", "-o", "commands")...)), 0o600))
	path := fmt.Sprintf("PATH=%s:%s", ns.variable("PATH"), os.Getenv("PATH"))
	t.Cleanup(func() { _, _ = ns.run("", ns.kubectl("delete", "devicetaintrules", "-l", driverName+"/defragment")...) }) // the commands delete them
	t.Log(ns.must(t, "env", path, "bash", file))

	assert.Equal(t, has.ParentUUID, ns.migDevice("waits").ParentUUID)
	moved := ns.grantedTo(ns.ready(ns.podOf("blocks", before)), "mig")[0]
	assert.Equal(t, other, moved.Index)
	assert.Empty(t, strings.TrimSpace(ns.must(t, ns.kubectl("get", "devicetaintrules", "--output=name", "-l", driverName+"/defragment")...)))
	_, err := ns.run("", ns.prism("defragment", "stays")...)
	require.NoError(t, err, "a pod that runs needs no plan")
	ns.delete("deployment", "blocks")
}

// createDeployment creates a Deployment with one pod like a workload.
func (ns *namespace) createDeployment(name string, w workload) {
	ns.t.Helper()
	objects := w.objects()
	pod := w.pod()
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	labels := map[string]string{"app": name}
	deployment := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"replicas": 1, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod.Spec},
		},
	}
	for _, object := range []any{objects[0], deployment} {
		text, err := json.Marshal(object)
		require.NoError(ns.t, err)
		require.NoError(ns.t, ns.createText(string(text)))
	}
}

// podOf waits for the pod of a Deployment with another name than the former one, and returns its name.
func (ns *namespace) podOf(deployment, former string) (name string) {
	ns.t.Helper()
	eventually(ns.t, startLimit, func() error {
		var pods corev1.PodList
		if err := ns.read(&pods, "pods", "--selector", "app="+deployment); err != nil {
			return err
		}
		for i := range pods.Items {
			if name = pods.Items[i].Name; name != former {
				return nil
			}
		}
		return fmt.Errorf("deployment %s has no other pod than %q", deployment, former)
	})
	return name
}

// capacityOf returns how many more devices of a class fit.
func (ns *namespace) capacityOf(class string) int {
	ns.t.Helper()
	var free struct {
		Classes []struct {
			Total int `json:"total"`
		} `json:"classes"`
	}
	require.NoError(ns.t, json.Unmarshal([]byte(ns.must(ns.t, ns.prism("capacity", class, "-o", "json")...)), &free))
	require.Len(ns.t, free.Classes, 1)
	return free.Classes[0].Total
}
