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
	"github.com/prism-gpu/prism/test/allocator"
)

type results = []resourceapi.DeviceRequestAllocationResult

// deviceClasses are the classes by name, as the allocator's lister.
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

// allocate runs the allocator for a claim with one request; without results no such device is left on the node. The scheduler creates an
// allocator per pod and calls Allocate per node; the duration is the duration of Allocate.
func (s *node) allocate(ctx context.Context, request *resourceapi.ExactDeviceRequest) (results, time.Duration, error) {
	allocated := allocator.Nothing()
	allocated.Devices = s.taken
	a, err := allocator.New(ctx, allocator.Features, allocated, s.classes, s.slices, s.cache)
	if err != nil {
		return nil, 0, fmt.Errorf("layout %s: %w", s.layout.Name, err)
	}
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "scale", Name: "claim", UID: "claim"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: request}},
		}},
	}
	start := time.Now()
	found, err := a.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, []*resourceapi.ResourceClaim{claim})
	took := time.Since(start)
	if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return nil, 0, fmt.Errorf("layout %s, class %s: %w", s.layout.Name, request.DeviceClassName, err)
	}
	if len(found) == 0 {
		return nil, took, nil
	}
	return found[0].Devices.Results, took, nil
}

// take marks results as allocated, except those with admin access.
func (s *node) take(all results) {
	for i := range all {
		if admin := all[i].AdminAccess; admin == nil || !*admin {
			s.taken.Insert(structured.MakeDeviceID(all[i].Driver, all[i].Pool, all[i].Device))
		}
	}
}

// fill allocates devices until none is left or the maximum is reached, and returns all results.
func (s *node) fill(ctx context.Context, request *resourceapi.ExactDeviceRequest, most int) (all results, err error) {
	for len(all) < most {
		found, _, err := s.allocate(ctx, request)
		if err != nil || len(found) == 0 {
			return all, err
		}
		s.take(found)
		all = append(all, found...)
	}
	return all, nil
}

// evaluations counts the CEL expressions that one Allocate evaluates, by the line that the allocator logs for each.
func (s *node) evaluations(ctx context.Context, request *resourceapi.ExactDeviceRequest) (int, error) {
	counter := &evaluationCounter{}
	_, _, err := s.allocate(klog.NewContext(ctx, logr.New(counter)), request)
	return counter.n, err
}

// evaluationCounter is a log sink that counts the lines about CEL.
type evaluationCounter struct{ n int }

// evaluationLine is the message that the allocator logs for each evaluated expression.
const evaluationLine = "CEL result"

// Init does nothing.
func (c *evaluationCounter) Init(logr.RuntimeInfo) {}

// Enabled is true for all levels: the lines have level 7.
func (c *evaluationCounter) Enabled(int) bool { return true }

// Info counts the lines.
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
