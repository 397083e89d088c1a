package explaining

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/scale"
)

// Driver is the name of the driver.
const Driver = "gpu.prism.dev"

// Namespace has all claims and pods.
const Namespace = "ml"

const mib = 1 << 20

// profiles are the MIG profiles in use.
var profiles = map[string]int{"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 4}

// Pending are the names of the pods that wait, and so are the names of their claims.
var Pending = []string{"whole", "mig-3g-40gb", "mig-1g-10gb", "mps-40gi", "timeslice", "no-such-product"}

// world makes the objects of a cluster.
type world struct {
	random *rand.Rand
	// full is the part of the GPUs that are in use.
	full   float64
	claims int
	emit   func(object)
}

// object is an object of the API.
type object interface {
	metav1.Object
	Marshal() ([]byte, error)
}

// make emits all objects of a cluster of nodes with eight GPUs each, in all sharing modes.
func (c *world) make(ctx context.Context, nodes int) error {
	model, err := scale.Simulated(ctx)
	if err != nil {
		return err
	}
	for i := range nodes {
		c.node(fmt.Sprintf("gpu-node-%04d", i), i, model)
	}
	for _, name := range slices.Sorted(maps.Keys(requests())) {
		request := requests()[name]
		c.emit(class(request.DeviceClassName))
		claim := &resourceapi.ResourceClaim{ObjectMeta: c.meta(name)}
		claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: request}}
		c.emit(claim)
		c.emit(c.pod(name, ""))
	}
	return nil
}

// requests are the requests of the pods that wait.
func requests() map[string]*resourceapi.ExactDeviceRequest {
	of := func(kind gpu.DeviceType, class string, expressions ...string) *resourceapi.ExactDeviceRequest {
		r := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
		for _, e := range append([]string{fmt.Sprintf("device.attributes[%q].type == %q", Driver, kind)}, expressions...) {
			r.Selectors = append(r.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
		}
		return r
	}
	profile := func(name string) *resourceapi.ExactDeviceRequest {
		return of(gpu.TypeMIG, "mig", fmt.Sprintf("device.attributes[%q].profile == %q", Driver, name))
	}
	mps := of(gpu.TypeMPS, "mps")
	mps.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{publish.CapMemory: resource.MustParse("40Gi")}}
	return map[string]*resourceapi.ExactDeviceRequest{
		"whole": of(gpu.TypeGPU, "gpu"), "mig-3g-40gb": profile("3g.40gb"), "mig-1g-10gb": profile("1g.10gb"), "mps-40gi": mps,
		"timeslice":       of(gpu.TypeTimeSlice, "timeslice"),
		"no-such-product": of(gpu.TypeGPU, "gpu", fmt.Sprintf(`device.attributes[%q].productName == "NVIDIA B200"`, Driver)),
	}
}

func class(name string) *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
		{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", Driver)}},
	}}}
}

// node emits a node, its ResourceSlices, and the claims and pods that use its GPUs.
func (c *world) node(name string, number int, model *gpu.Node) {
	n := *model
	n.GPUs = slices.Clone(model.GPUs)
	for i := range n.GPUs {
		n.GPUs[i].UUID = gpu.UUID(fmt.Sprintf("GPU-%04x%04x-1111-2222-3333-%012x", c.random.IntN(1<<16), number, i))
	}
	gpu.AssignIDs(n.GPUs)
	options := publish.Options{DriverName: Driver, NodeName: name, Layout: gpu.Layout{}, Additional: gpu.Additional{Monitor: true, Perfmon: true}}
	for i := range n.GPUs {
		options.Layout[n.GPUs[i].UUID] = gpu.Modes{
			Whole: true, MIG: n.GPUs[i].MIG.ProfileNames(), TimeSlice: &gpu.Replicas{Count: 4},
			MPS: &gpu.MPSSharing{MPSSize: gpu.MPSSize{
				Replicas: 8, Memory: gpu.MPSMemory{Total: 72 << 30, Default: 9 << 30, Min: 1 << 30, Max: 72 << 30, Step: 1 << 30},
				Threads: gpu.MPSThreads{Total: 100},
			}},
		}
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: c.uid(), ResourceVersion: "7", Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelInstanceTypeStable: "p5.48xlarge", corev1.LabelTopologyZone: fmt.Sprint("zone-", number%3),
	}}}
	object.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("192"), "memory": resource.MustParse("2Ti"), "pods": resource.MustParse("110")}
	for i := range 40 { // images, which nodes list
		object.Status.Images = append(object.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprint("registry.example.com/image-", i)}, SizeBytes: mib})
	}
	c.emit(object)
	pools := publish.Resources(options, &n).Pools
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for i, s := range pools[pool].Slices {
			c.emit(&resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("%d-%s-%s-x7k2p", i, Driver, strings.ReplaceAll(pool, "/", "-")), UID: c.uid(), ResourceVersion: "7", Generation: 1,
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: object.UID, Controller: new(true)}},
				},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: Driver, NodeName: &name, Devices: s.Devices, SharedCounters: s.SharedCounters,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: int64(1 + number%5), ResourceSliceCount: int64(len(pools[pool].Slices))},
				},
			})
		}
	}
	for i := range n.GPUs {
		if c.random.Float64() < c.full {
			c.use(name, name+"/gpu-"+n.GPUs[i].ID, &n.GPUs[i])
		}
	}
}

// use emits claims and pods that use a GPU in one of its modes.
func (c *world) use(node, pool string, g *gpu.GPU) {
	hold := func(device string, share bool, memory int64) {
		c.claims++
		name := fmt.Sprintf("used-%06d", c.claims)
		result := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: Driver, Pool: pool, Device: device}
		if share {
			result.ShareID = new(c.uid())
			result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
				publish.CapMemory: *resource.NewQuantity(memory, resource.BinarySI), publish.CapShares: resource.MustParse("1"),
			}
		}
		claim := &resourceapi.ResourceClaim{ObjectMeta: c.meta(name)}
		claim.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-scheduler", FieldsV1: metav1.NewFieldsV1(string(make([]byte, 1024)))}}
		claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu", Count: 1}}}
		pod := c.pod(name, node)
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}}
		claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}}}
		c.emit(claim)
		c.emit(pod)
	}
	device := "gpu-" + g.ID
	switch c.random.IntN(4) {
	case 0:
		hold(device, false, 0)
	case 1:
		for range 1 + c.random.IntN(4) {
			hold(device+"-mps", true, 9<<30)
		}
	case 2:
		for range 1 + c.random.IntN(4) {
			hold(device+"-timeslice", true, 0)
		}
	default:
		c.useMIG(device, g, func(name string) { hold(name, false, 0) })
	}
}

// useMIG creates MIG devices until nothing more fits, or fewer.
func (c *world) useMIG(device string, g *gpu.GPU, hold func(string)) {
	next := 0
	for _, i := range c.random.Perm(len(g.MIG.Profiles)) {
		p := &g.MIG.Profiles[i]
		if profiles[p.Name] == 0 {
			continue
		}
		for _, placement := range p.Placements {
			if placement.Start >= next && c.random.IntN(3) > 0 {
				hold(fmt.Sprintf("%s-mig-%d-%d", device, p.ID, placement.Start))
				next = placement.Start + placement.Size
			}
		}
	}
	if next == 0 {
		hold(device)
	}
}

func (c *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: Namespace, Name: name, UID: c.uid(), ResourceVersion: "7", CreationTimestamp: metav1.Unix(1_790_000_000, 0)}
}

func (c *world) uid() types.UID {
	return types.UID(fmt.Sprintf("%016x-%016x", c.random.Uint64(), c.random.Uint64()))
}

// pod returns a pod with the claim of its name; without a node it waits.
func (c *world) pod(name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: c.meta(name)}
	p.Labels = map[string]string{"app": "train", "pod-template-hash": "6d4cf56db6"}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(string(make([]byte, 2048)))}}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "train-6d4cf56db6", UID: "r", Controller: new(true)}}
	p.Spec = corev1.PodSpec{
		NodeName: node, SchedulerName: corev1.DefaultSchedulerName,
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
		Containers: []corev1.Container{{
			Name: "main", Image: "registry.example.com/train:1", Command: []string{"train", "--steps=1000"},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi")}, Claims: []corev1.ResourceClaim{{Name: "gpu"}},
			},
			Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 200)}},
		}},
	}
	p.Status.Phase = corev1.PodPending
	if node != "" {
		p.Status.Phase = corev1.PodRunning
	}
	return p
}
