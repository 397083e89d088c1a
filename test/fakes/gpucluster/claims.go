package gpucluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

const gib = 1 << 30

// use allocates devices of a pool to claims: of each GPU in one mode.
func (m *maker) use(pool string, published []resourceslice.Slice, namespaces []string) {
	byGPU := map[string][]*resourceapi.Device{}
	var names []string
	for i := range published {
		for k := range published[i].Devices {
			d := &published[i].Devices[k]
			name := clusterview.NameOf(d.Name)
			if byGPU[name] == nil {
				names = append(names, name)
			}
			byGPU[name] = append(byGPU[name], d)
		}
	}
	for _, name := range names {
		devices := byGPU[name]
		mode := m.random.IntN(100)
		if len(devices) == 1 {
			mode %= 38
		}
		namespace := namespaces[m.random.IntN(len(namespaces))]
		switch {
		case mode < 3:
		case mode < 38:
			m.claim(pool, find(devices, "gpu"), namespace, "train", 0, false)
		case mode < 72 && find(devices, "mig") != nil:
			m.partition(pool, devices, namespaces)
		case mode < 88:
			for range 1 + m.random.IntN(4) {
				m.claim(pool, find(devices, "mps"), namespaces[m.random.IntN(len(namespaces))], "chat", int64(4+m.random.IntN(14))*gib, true)
			}
		default:
			for range 1 + m.random.IntN(4) {
				m.claim(pool, find(devices, "timeslice"), namespace, "notebook", 0, true)
			}
		}
	}
}

// find returns the first device of a type; nil without one.
func find(devices []*resourceapi.Device, kind string) *resourceapi.Device {
	for _, d := range devices {
		if clusterview.Text(d, Driver, "type") == kind {
			return d
		}
	}
	return nil
}

// partition allocates MIG devices that share no counter.
func (m *maker) partition(pool string, devices []*resourceapi.Device, namespaces []string) {
	taken := map[string]bool{}
	for _, i := range m.random.Perm(len(devices)) {
		d := devices[i]
		if clusterview.Text(d, Driver, "type") != "mig" || strings.Contains(clusterview.Text(d, Driver, "profile"), "+") || m.random.IntN(5) == 0 {
			continue
		}
		counters := memorySlices(d)
		if slices.ContainsFunc(counters, func(name string) bool { return taken[name] }) {
			continue
		}
		for _, name := range counters {
			taken[name] = true
		}
		m.claim(pool, d, namespaces[m.random.IntN(len(namespaces))], "rank", 0, false)
	}
}

// memorySlices are the names of the memory slices that a MIG device consumes.
func memorySlices(d *resourceapi.Device) (names []string) {
	for _, consumed := range d.ConsumesCounters {
		for name := range consumed.Counters {
			if strings.HasPrefix(name, "memory-slice-") {
				names = append(names, name)
			}
		}
	}
	return names
}

// claim allocates a device to a new claim with a pod.
func (m *maker) claim(pool string, d *resourceapi.Device, namespace, workload string, memory int64, share bool) {
	m.claims++
	name := fmt.Sprintf("%s-%d", workload, m.claims)
	claim := claimOf(namespace, name, classOf(d))
	claim.CreationTimestamp = metav1.NewTime(Now.Add(-time.Duration(1+m.random.IntN(20_000)) * time.Minute))
	result := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: Driver, Pool: pool, Device: d.Name}
	if share {
		id := types.UID(name)
		result.ShareID = &id
		result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
			"memory": *resource.NewQuantity(memory, resource.BinarySI), "shares": resource.MustParse("1"),
		}
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: types.UID("pod-" + namespace + name)}}
	m.PutClaim(claim)
	node, _, _ := strings.Cut(pool, "/")
	pod := podOf(namespace, name, claim.Name)
	pod.Spec.NodeName, pod.CreationTimestamp, pod.Status.Phase = node, claim.CreationTimestamp, corev1.PodRunning
	m.PutPod(pod)
}

// classOf is the class that a user would request the device by.
func classOf(d *resourceapi.Device) string {
	switch kind := clusterview.Text(d, Driver, "type"); kind {
	case "gpu":
		return Driver
	case "mig":
		return "mig-" + strings.ReplaceAll(clusterview.Text(d, Driver, "profile"), ".", "-") + "." + Driver
	default:
		return kind + "." + Driver
	}
}

func claimOf(namespace, name, class string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-gpu", UID: types.UID("claim-" + namespace + name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		}}}},
	}
}

func podOf(namespace, name, claim string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("pod-" + namespace + name)}}
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	pod.Spec.SchedulerName = corev1.DefaultSchedulerName
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	return pod
}

// pending puts a pod that waits.
func (m *maker) pending(i int, namespace string) {
	workloads := []string{"train", "finetune", "rank", "chat"}
	classes := []string{Driver, "mig-3g-40gb." + Driver, "mig-1g-10gb." + Driver, "mps." + Driver}
	name := fmt.Sprintf("%s-wait-%d", workloads[i%4], i)
	created := metav1.NewTime(Now.Add(-time.Duration(1+m.random.IntN(300)) * time.Minute))
	claim := claimOf(namespace, name, classes[i%4])
	if i%4 == 0 {
		claim.Spec.Devices.Requests[0].Exactly.Count = 8
	}
	claim.CreationTimestamp = created
	m.PutClaim(claim)
	pod := podOf(namespace, name, claim.Name)
	pod.CreationTimestamp, pod.Status.Phase = created, corev1.PodPending
	m.PutPod(pod)
}
