package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/publish"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// Scheduling is what two nodes of 8 GPUs cost the scheduler: one whose GPUs are only offered whole, and one that also offers
// them in slices.
type Scheduling struct {
	Whole, Mixed Offer
	Filters      []Filter
	// Packing is measured by itself.
	Packing Packing
}

// Offer is how much a node publishes.
type Offer struct{ Devices, Slices int }

// Filter is how long the scheduler looks for the device of one claim on one node, with its own allocator.
type Filter struct {
	// What says what is asked for, and what is taken already.
	What string
	// Whole and Mixed are the two nodes. No samples: the node has no such devices.
	Whole, Mixed Samples
}

const (
	filterSamples = 200
	filterGPUs    = 8
	filterNode    = "node"
)

// filters are measured: a class and a selector, and of what the node is full.
var filters = []struct {
	what, full string
	slice      bool
}{
	{what: "a whole GPU, on an empty node"},
	{what: "a whole GPU, on a node whose GPUs are given whole", full: "gpu"},
	{what: "a whole GPU, on a node full of the smallest slices", full: "mig"},
	{what: "a slice by its profile, on an empty node", slice: true},
	{what: "a slice by its profile, on a node whose GPUs are given whole", slice: true, full: "gpu"},
	{what: "a slice by its profile, on a node full of them", slice: true, full: "mig"},
}

// MeasureScheduling works on what the driver would publish; classes are those of the cluster.
func MeasureScheduling(ctx context.Context, driver string, classes []resourceapi.DeviceClass) (s Scheduling, err error) {
	node, err := simulated(ctx)
	if err != nil {
		return s, err
	}
	mixed := gpu.Layout{}
	for i := range node.GPUs {
		mixed[node.GPUs[i].UUID] = gpu.Offer{Whole: true, MIG: node.GPUs[i].MIG.ProfileNames()}
	}
	whole := newScheduler(driver, classes, node, nil)
	cut := newScheduler(driver, classes, node, mixed)
	s.Whole, s.Mixed = whole.offer(), cut.offer()
	for _, f := range filters {
		row := Filter{What: f.what}
		request := whole.request("gpu")
		if f.slice {
			request = whole.request("mig")
		}
		if !f.slice && f.full != "mig" {
			if row.Whole, err = whole.filter(ctx, request, f.full); err != nil {
				return s, err
			}
		}
		if row.Mixed, err = cut.filter(ctx, request, f.full); err != nil {
			return s, err
		}
		s.Filters = append(s.Filters, row)
	}
	return s, nil
}

// simulated is a node with GPUs that can be cut.
func simulated(ctx context.Context) (*gpu.Node, error) {
	n, err := model.New(model.Uniform(filterNode, "h100-80", filterGPUs))
	if err != nil {
		return nil, err
	}
	host := port.NewHost(n)
	inv := inventory.New(inventory.Options{Host: host, Open: host.Open})
	err = inv.Refresh(ctx)
	return inv.Current().Node, err
}

// scheduler hands out a node's devices as the scheduler of Kubernetes 1.37 does.
type scheduler struct {
	driver  string
	slices  []*resourceapi.ResourceSlice
	classes deviceClasses
	cache   *cel.Cache
}

var schedulerFeatures = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
}

// deviceClasses are those of the cluster by their names.
type deviceClasses map[string]*resourceapi.DeviceClass

// List returns all classes.
func (c deviceClasses) List() ([]*resourceapi.DeviceClass, error) {
	return slices.Collect(maps.Values(c)), nil
}

// Get returns one class.
func (c deviceClasses) Get(name string) (*resourceapi.DeviceClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}

func newScheduler(driver string, classes []resourceapi.DeviceClass, node *gpu.Node, layout gpu.Layout) *scheduler {
	s := &scheduler{driver: driver, classes: deviceClasses{}, cache: cel.NewCache(64, cel.Features{EnableConsumableCapacity: true})}
	for i := range classes {
		s.classes[classes[i].Name] = &classes[i]
	}
	pools := publish.Resources(publish.Options{DriverName: driver, NodeName: filterNode, Layout: layout}, node).Pools
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for i, slice := range pools[pool].Slices {
			name := filterNode
			s.slices = append(s.slices, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", strings.ReplaceAll(pool, "/", "-"), i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: driver, NodeName: &name, Devices: slice.Devices, SharedCounters: slice.SharedCounters,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(pools[pool].Slices))},
				},
			})
		}
	}
	return s
}

func (s *scheduler) offer() Offer {
	o := Offer{Slices: len(s.slices)}
	for _, slice := range s.slices {
		o.Devices += len(slice.Spec.Devices)
	}
	return o
}

// request asks for a whole GPU ("gpu") or for a slice of the smallest profile ("mig").
func (s *scheduler) request(kind string) *resourceapi.ExactDeviceRequest {
	if kind == "mig" {
		return s.slice(sliceProfile)
	}
	return &resourceapi.ExactDeviceRequest{DeviceClassName: s.driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
}

// slice asks for a slice of a profile.
func (s *scheduler) slice(profile string) *resourceapi.ExactDeviceRequest {
	return &resourceapi.ExactDeviceRequest{
		DeviceClassName: "mig." + s.driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].profile == %q", s.driver, profile),
		}}},
	}
}

// filter measures looks for one device on a node that is full of devices of a kind; empty: nothing is taken.
func (s *scheduler) filter(ctx context.Context, request *resourceapi.ExactDeviceRequest, full string) (Samples, error) {
	taken := sets.New[structured.DeviceID]()
	for full != "" {
		results, _, err := s.allocate(ctx, s.request(full), taken)
		if err != nil {
			return nil, err
		}
		if len(results) == 0 {
			break
		}
		for _, r := range results {
			taken.Insert(structured.MakeDeviceID(r.Driver, r.Pool, r.Device))
		}
	}
	var samples Samples
	for i := range warmUp + filterSamples {
		results, took, err := s.allocate(ctx, request, taken)
		if err != nil {
			return nil, err
		}
		if found := len(results) > 0; found == (full != "") {
			return nil, fmt.Errorf("measuring the scheduler: it is %t that class %s has a device on a node full of %q", found, request.DeviceClassName, full)
		}
		if i >= warmUp {
			samples = append(samples, took)
		}
	}
	return samples, nil
}

// allocate looks for the device once, and tells how long that took. The scheduler makes an allocator for each pod, and asks it
// about each node.
func (s *scheduler) allocate(ctx context.Context, request *resourceapi.ExactDeviceRequest, taken sets.Set[structured.DeviceID]) (
	[]resourceapi.DeviceRequestAllocationResult, time.Duration, error,
) {
	allocator, err := structured.NewAllocator(ctx, schedulerFeatures, structured.AllocatedState{
		AllocatedDevices: taken, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}, s.classes, s.slices, s.cache)
	if err != nil {
		return nil, 0, fmt.Errorf("measuring the scheduler: %w", err)
	}
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: "claim", UID: "claim"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: request}},
		}},
	}
	start := time.Now()
	results, err := allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: filterNode}}, []*resourceapi.ResourceClaim{claim})
	took := time.Since(start)
	if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return nil, 0, fmt.Errorf("measuring the scheduler: %w", err)
	}
	if len(results) == 0 {
		return nil, took, nil
	}
	return results[0].Devices.Results, took, nil
}
