package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// celEntries is the number of compiled expressions that a Solver keeps.
const celEntries = 100

// Solver asks the scheduler's allocator. It is not safe for concurrent use.
type Solver struct {
	Cluster  *clusterview.Cluster
	Features structured.Features
	// Calls counts calls of the allocator.
	Calls int

	cel *cel.Cache
}

// NewSolver returns a Solver for a cluster whose scheduler has these features.
func NewSolver(cluster *clusterview.Cluster, features structured.Features) *Solver {
	return &Solver{Cluster: cluster, Features: features, cel: cel.NewCache(celEntries, cel.Features{
		EnableConsumableCapacity: features.ConsumableCapacity, EnableListTypeAttributes: features.ListTypeAttributes,
	})}
}

// Question is whether claims can be allocated on a node.
type Question struct {
	Node *clusterview.Node
	// Pools restricts the devices; nil stands for all pools of the node and the shared ones.
	Pools  []*clusterview.Pool
	Claims []*resourceapi.ResourceClaim
	// Released reports whether the devices of an allocated claim count as free; nil releases none.
	Released func(*clusterview.Claim) bool
	// More are devices that count as allocated besides the claims' in the cluster.
	More []resourceapi.DeviceRequestAllocationResult
	// IgnoreTaints removes all taints.
	IgnoreTaints bool
	// Tainted reports whether a device has a further taint that a DeviceTaintRule would add; nil adds none.
	Tainted func(pool *clusterview.Pool, device string) bool
}

// ruleTaint is the taint of the devices for which Question.Tainted is true.
var ruleTaint = resourceapi.DeviceTaint{Key: "gpu.prism.dev/defragment", Effect: resourceapi.DeviceTaintEffectNoSchedule}

// Allocate returns the allocation of each claim, nil if they do not fit. An error means that the scheduler would try no other node either.
func (s *Solver) Allocate(ctx context.Context, q Question) ([]resourceapi.AllocationResult, error) {
	s.Calls++
	pools := q.Pools
	if pools == nil {
		pools = slices.Concat(q.Node.Pools, s.Cluster.Shared)
	}
	var published []*resourceapi.ResourceSlice
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, p := range pools {
		for _, slice := range p.Slices() {
			if q.IgnoreTaints {
				slice = untainted(slice)
			}
			if q.Tainted != nil {
				slice = tainted(slice, func(device string) bool { return q.Tainted(p, device) })
			}
			published = append(published, slice)
		}
		for _, use := range p.Uses {
			if q.Released == nil || !q.Released(use.Claim) {
				s.count(&state, use.Result)
			}
		}
	}
	for i := range q.More {
		s.count(&state, &q.More[i])
	}
	allocator, err := structured.NewAllocator(ctx, s.Features, state, classes(s.Cluster.Classes), published, s.cel)
	if err != nil {
		return nil, fmt.Errorf("creating the scheduler's allocator: %w", err)
	}
	return allocator.Allocate(ctx, object(q.Node), q.Claims)
}

// count adds an allocated device, as the scheduler does.
func (s *Solver) count(state *structured.AllocatedState, r *resourceapi.DeviceRequestAllocationResult) {
	id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
	if !s.Features.ConsumableCapacity || r.ShareID == nil {
		state.AllocatedDevices.Insert(id)
		return
	}
	state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
	if r.ConsumedCapacity != nil {
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
}

// object returns the Node, or one with only the name if Nodes were not read.
func object(node *clusterview.Node) *corev1.Node {
	if node.Object != nil {
		return node.Object
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
}

// untainted returns a copy without taints; it shares all else.
func untainted(of *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	if !slices.ContainsFunc(of.Spec.Devices, func(d resourceapi.Device) bool { return len(d.Taints) > 0 }) {
		return of
	}
	clean := *of
	clean.Spec.Devices = slices.Clone(of.Spec.Devices)
	for i := range clean.Spec.Devices {
		clean.Spec.Devices[i].Taints = nil
	}
	return &clean
}

// tainted returns a copy with ruleTaint on some devices; it shares all else.
func tainted(of *resourceapi.ResourceSlice, more func(device string) bool) *resourceapi.ResourceSlice {
	copied := of
	for i := range of.Spec.Devices {
		if !more(of.Spec.Devices[i].Name) {
			continue
		}
		if copied == of {
			clone := *of
			clone.Spec.Devices = slices.Clone(of.Spec.Devices)
			copied = &clone
		}
		copied.Spec.Devices[i].Taints = append(slices.Clip(of.Spec.Devices[i].Taints), ruleTaint)
	}
	return copied
}

// classes lists DeviceClasses for the allocator.
type classes map[string]*resourceapi.DeviceClass

// List returns all.
func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return slices.Collect(maps.Values(c)), nil
}

// Get returns one, or an error.
func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("DeviceClass %s does not exist", name)
}
