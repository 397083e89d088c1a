package scale

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// features are those of Kubernetes 1.37 without alpha gates.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
}

type results = []resourceapi.DeviceRequestAllocationResult

// deviceClasses are the classes by their names; it is the allocator's lister.
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

// node is one node of a layout under the scheduler's own allocator.
type node struct {
	name    string
	layout  *Layout
	slices  []*resourceapi.ResourceSlice
	classes deviceClasses
	cache   *cel.Cache
	taken   sets.Set[structured.DeviceID]
}

func newNode(l *Layout, name string, n *gpu.Node) *node {
	s := &node{
		name: name, layout: l, slices: objects(l.Driver, name, l.Pools(name, n)), classes: deviceClasses{},
		cache: cel.NewCache(64, cel.Features{EnableConsumableCapacity: true}), taken: sets.New[structured.DeviceID](),
	}
	for i := range l.Classes {
		s.classes[l.Classes[i].Name] = &l.Classes[i]
	}
	return s
}

// allocate asks once for the devices of a claim with one request; no results: the pod has to wait. The scheduler makes an allocator for
// each pod and calls Allocate for each node: that call is what is timed.
func (s *node) allocate(ctx context.Context, ask *resourceapi.ExactDeviceRequest) (results, time.Duration, error) {
	allocator, err := structured.NewAllocator(ctx, features, structured.AllocatedState{
		AllocatedDevices: s.taken, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}, s.classes, s.slices, s.cache)
	if err != nil {
		return nil, 0, fmt.Errorf("layout %s: %w", s.layout.Name, err)
	}
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "scale", Name: "claim", UID: "claim"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: ask}},
		}},
	}
	start := time.Now()
	found, err := allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, []*resourceapi.ResourceClaim{claim})
	took := time.Since(start)
	if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return nil, 0, fmt.Errorf("layout %s, class %s: %w", s.layout.Name, ask.DeviceClassName, err)
	}
	if len(found) == 0 {
		return nil, took, nil
	}
	return found[0].Devices.Results, took, nil
}

// take counts results as allocated, but for those with admin access, which take nothing.
func (s *node) take(all results) {
	for i := range all {
		if admin := all[i].AdminAccess; admin == nil || !*admin {
			s.taken.Insert(structured.MakeDeviceID(all[i].Driver, all[i].Pool, all[i].Device))
		}
	}
}

// fill takes devices of a request until none is left, or so many are taken; it returns all of them.
func (s *node) fill(ctx context.Context, ask *resourceapi.ExactDeviceRequest, most int) (all results, err error) {
	for len(all) < most {
		found, _, err := s.allocate(ctx, ask)
		if err != nil || len(found) == 0 {
			return all, err
		}
		s.take(found)
		all = append(all, found...)
	}
	return all, nil
}

// Evaluations counts the CEL expressions that the allocator evaluates during one Allocate for the ask. The allocator has no other
// witness than its log: it writes a line for each.
func (s *node) evaluations(ctx context.Context, ask *resourceapi.ExactDeviceRequest) (int, error) {
	counter := &evaluationCounter{}
	_, _, err := s.allocate(klog.NewContext(ctx, logr.New(counter)), ask)
	return counter.n, err
}

// evaluationCounter is a sink that counts the lines about CEL.
type evaluationCounter struct{ n int }

// evaluationLine is what the allocator logs for each expression that it has evaluated.
const evaluationLine = "CEL result"

// Init does nothing.
func (c *evaluationCounter) Init(logr.RuntimeInfo) {}

// Enabled is true for all levels: the lines have level 7.
func (c *evaluationCounter) Enabled(int) bool { return true }

// Info counts.
func (c *evaluationCounter) Info(_ int, msg string, _ ...any) {
	if msg == evaluationLine {
		c.n++
	}
}

// Error does nothing.
func (c *evaluationCounter) Error(error, string, ...any) {}

// WithValues returns the same sink.
func (c *evaluationCounter) WithValues(...any) logr.LogSink { return c }

// WithName returns the same sink.
func (c *evaluationCounter) WithName(string) logr.LogSink { return c }
