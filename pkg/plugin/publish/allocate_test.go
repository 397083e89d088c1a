package publish_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/allocator"
)

// scheduler allocates a node's devices with the scheduler's own algorithm.
type scheduler struct {
	t        *testing.T
	features structured.Features
	slices   []*resourceapi.ResourceSlice
	classes  structured.DeviceClassLister
	taken    sets.Set[structured.DeviceID]
	// allocated contains the devices of taken.
	allocated allocator.Allocated
	cache     *cel.Cache
}

func newScheduler(t *testing.T, published []*resourceapi.ResourceSlice) *scheduler {
	t.Helper()
	nothing := allocator.Nothing()
	return &scheduler{
		t: t, features: allocator.Features, slices: published, taken: nothing.Devices, allocated: nothing,
		classes: classesByName{
			"gpu.prism.dev": "gpu", "mig.gpu.prism.dev": "mig", "monitor.gpu.prism.dev": "monitor", "perfmon.gpu.prism.dev": "perfmon", "timeslice.gpu.prism.dev": "timeslice",
			"mps.gpu.prism.dev": "mps",
			byCapacityClass:     "",
		},
		cache: cel.NewCache(64, cel.Features{EnableConsumableCapacity: true}),
	}
}

// classesByName are the DeviceClasses the chart installs: name to device type, none for a class without selectors.
type classesByName map[string]string

func (c classesByName) List() ([]*resourceapi.DeviceClass, error) { return nil, errors.ErrUnsupported }

func (c classesByName) Get(name string) (*resourceapi.DeviceClass, error) {
	deviceType, ok := c[name]
	if !ok {
		return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
	}
	if deviceType == "" {
		return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
	}
	expression := fmt.Sprintf(`device.driver == %q && device.attributes[%q].type == %q`, driverName, driverName, deviceType)
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{selector(expression)}},
	}, nil
}

func selector(expression string) resourceapi.DeviceSelector {
	return resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}
}

// request asks for count devices of a class.
func request(class string, count int64, expressions ...string) resourceapi.ExactDeviceRequest {
	r := resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	for _, e := range expressions {
		r.Selectors = append(r.Selectors, selector(e))
	}
	return r
}

// allocator knows the devices that are taken now.
func (s *scheduler) allocator() structured.Allocator {
	s.t.Helper()
	a, err := allocator.New(s.t.Context(), s.features, s.allocated, s.classes, s.slices, s.cache)
	require.NoError(s.t, err)
	return a
}

// allocate returns the devices a claim with one request gets, nil if it must wait.
func (s *scheduler) allocate(r resourceapi.ExactDeviceRequest) []string {
	s.t.Helper()
	results := s.wouldAllocate(s.allocator(), r)
	var devices []string
	for _, result := range results {
		devices = append(devices, result.Device)
		s.hold(result)
	}
	return devices
}

// hold counts a result as allocated, release as deallocated.
func (s *scheduler) hold(r resourceapi.DeviceRequestAllocationResult) {
	id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
	switch {
	case r.AdminAccess != nil && *r.AdminAccess:
	case r.ShareID != nil:
		s.allocated.Shares.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		s.allocated.Consumed.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	default:
		s.taken.Insert(id)
	}
}

func (s *scheduler) release(r resourceapi.DeviceRequestAllocationResult) {
	id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
	if r.ShareID == nil {
		s.taken.Delete(id)
		return
	}
	s.allocated.Shares.Delete(structured.MakeSharedDeviceID(id, r.ShareID))
	s.allocated.Consumed.Remove(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
}

// wouldAllocate returns the devices that a claim with one request would get, nil if it must wait.
func (s *scheduler) wouldAllocate(allocator structured.Allocator, r resourceapi.ExactDeviceRequest) []resourceapi.DeviceRequestAllocationResult {
	s.t.Helper()
	return s.wouldAllocateAll(allocator, resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: &r}}})
}

// wouldAllocateAll returns the devices that a claim would get, nil if it must wait.
func (s *scheduler) wouldAllocateAll(allocator structured.Allocator, devices resourceapi.DeviceClaim) []resourceapi.DeviceRequestAllocationResult {
	s.t.Helper()
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim", UID: "claim"},
		Spec:       resourceapi.ResourceClaimSpec{Devices: devices},
	}
	results, err := allocator.Allocate(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, []*resourceapi.ResourceClaim{claim})
	if errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return nil
	}
	require.NoError(s.t, err)
	if results == nil {
		return nil
	}
	return results[0].Devices.Results
}

func TestAllocate_MoreClaimsThanGPUs_Waits(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 8)
	s := newScheduler(t, poolsOf(n, nil))
	for i := range n.GPUs {
		assert.Equal(t, []string{"gpu-" + n.GPUs[i].ID}, s.allocate(request("gpu.prism.dev", 1)), "in the order of the GPUs")
	}
	assert.Nil(t, s.allocate(request("gpu.prism.dev", 1)), "the ninth must wait")
}

func TestAllocate_PendingCleanup_NoClaim(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 2)
	s := newScheduler(t, poolsOf(n, nil, gpu.PendingCleanup{GPU: n.GPUs[0].UUID}))
	assert.Equal(t, []string{"gpu-" + n.GPUs[1].ID}, s.allocate(request("gpu.prism.dev", 1)))
	assert.Nil(t, s.allocate(request("gpu.prism.dev", 1)), "the other GPU is not released yet")
}

func TestAllocate_SeveralGPUs_AllOrNone(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 8)
	s := newScheduler(t, poolsOf(n, nil))
	assert.Nil(t, s.allocate(request("gpu.prism.dev", 9)))
	for i := range 4 {
		assert.Equal(t, []string{"gpu-" + n.GPUs[2*i].ID, "gpu-" + n.GPUs[2*i+1].ID}, s.allocate(request("gpu.prism.dev", 2)))
	}
	assert.Nil(t, s.allocate(request("gpu.prism.dev", 2)))
}

func TestSelectors_Attributes_Match(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expression string
		want       bool
	}{
		"productName":              {`device.attributes["gpu.prism.dev"].productName == "NVIDIA H100 80GB HBM3"`, true},
		"another productName":      {`device.attributes["gpu.prism.dev"].productName.matches("A100")`, false},
		"memory":                   {`device.capacity["gpu.prism.dev"].memory.compareTo(quantity("79Gi")) >= 0`, true},
		"more memory":              {`device.capacity["gpu.prism.dev"].memory.compareTo(quantity("80Gi")) >= 0`, false},
		"architecture":             {`device.attributes["gpu.prism.dev"].architecture == "Hopper"`, true},
		"another architecture":     {`device.attributes["gpu.prism.dev"].architecture == "Ampere"`, false},
		"compute capability":       {`device.attributes["gpu.prism.dev"].cudaComputeCapability.isGreaterThan(semver("8.9.0"))`, true},
		"driver version":           {`device.attributes["gpu.prism.dev"].driverVersion.compareTo(semver("580.0.0")) >= 0`, true},
		"a later driver":           {`device.attributes["gpu.prism.dev"].driverVersion.compareTo(semver("9999.0.0")) >= 0`, false},
		"profile of no MIG device": {`device.attributes["gpu.prism.dev"].profile == "none" && device.attributes["gpu.prism.dev"].replicas == 1`, true},
		"multiprocessors":          {`device.capacity["gpu.prism.dev"].multiprocessors.compareTo(quantity("132")) == 0`, true},
		"PCI root of the machine":  {`device.attributes["resource.kubernetes.io"].pcieRoot.startsWith("pci0000:")`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScheduler(t, poolsOf(node(t, "h100-80", 2), nil))
			assert.Equal(t, c.want, s.allocate(request("gpu.prism.dev", 1, c.expression)) != nil)
		})
	}
}
