package clusterview

import (
	"slices"
	"sync"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Cluster is the picture of a cluster at one moment. Its users must not change it.
type Cluster struct {
	// Nodes are the nodes with devices and all other nodes that were read, by name.
	Nodes []*Node
	// Shared are pools that several nodes reach. They are in the Pools of no node.
	Shared []*Pool
	// Claims are sorted by namespace and name.
	Claims []*Claim
	// Pods are the pods with claims or with extended resources, sorted by namespace and name.
	Pods    []*Pod
	Classes map[string]*resourceapi.DeviceClass
	// Templates are the templates that pods without their claims name; nil stands for one that does not exist. Others were not read.
	Templates map[types.NamespacedName]*resourceapi.ResourceClaimTemplate
	// Scope is the part of the cluster that the user may read.
	Scope Scope
}

// Scope is the part of a cluster that was read.
type Scope struct {
	// Namespace is the only namespace whose claims and pods were read; "" for all.
	Namespace string
	// Nodes and TaintRules report whether the Nodes and the DeviceTaintRules were read.
	Nodes, TaintRules bool
	// AllPods reports whether Cluster.Pods has the pods without GPUs too, whose requests fill nodes.
	AllPods bool
	// Read is the time of the API server at which the reading began; zero if unknown.
	Read time.Time
	// Changed is set if objects changed while they were read, and again while they were read once more: the picture is as old as Read.
	Changed bool
}

// Node is a node and the devices that only it reaches.
type Node struct {
	Name string
	// Object is reduced to labels, annotations, spec and allocatable resources; nil if Nodes were not read.
	Object *corev1.Node
	// Pools are in the order in which the scheduler's allocator tries them.
	Pools []*Pool
}

// PoolState says whether the scheduler uses a pool.
type PoolState string

// The states of a pool.
const (
	PoolComplete PoolState = "Complete"
	// PoolIncomplete has fewer ResourceSlices of the newest generation than announced.
	PoolIncomplete PoolState = "Incomplete"
	// PoolInvalid has several devices of one name, or consumes counters that it does not have.
	PoolInvalid PoolState = "Invalid"
)

// Pool is the newest generation of a resource pool.
type Pool struct {
	Driver, Name string
	// Node is nil for a pool in Cluster.Shared.
	Node       *Node
	Generation int64
	State      PoolState
	// Problem explains a state other than PoolComplete.
	Problem string
	// Uses are the allocated devices, by device, then by claim. Results with admin access are not among them: the scheduler does not count
	// them.
	Uses []Use

	pieces []*piece
	// rules are the DeviceTaintRules that may apply to its devices, by name.
	rules []*resourceapi.DeviceTaintRule

	mu sync.Mutex
	// expanded is the last result of Slices, until the next garbage collection.
	expanded weak.Pointer[expansion]
}

// expansion are the ResourceSlices of a pool.
type expansion struct{ slices []*resourceapi.ResourceSlice }

// Use is the allocation of a device to a claim.
type Use struct {
	Claim  *Claim
	Result *resourceapi.DeviceRequestAllocationResult
}

// Claim is a ResourceClaim, without managed fields and without the data of its devices.
type Claim struct {
	*resourceapi.ResourceClaim
	// Pods are the pods for which the claim is reserved, and all that refer to it. A pod that was not read has only a name and a UID.
	Pods []*Pod
}

// Pod is a Pod, reduced to the fields that matter for its placement.
type Pod struct {
	*corev1.Pod
	// Claims are its claims that exist, in the order of its spec; then the claim of its extended resources.
	Claims []*Claim
}

// Slices returns the pool's ResourceSlices as they were read, in the order of their names, with the taints of DeviceTaintRules. Of the
// metadata they have the name. The caller may keep, but not change them.
func (p *Pool) Slices() []*resourceapi.ResourceSlice {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.expanded.Value(); known != nil {
		return known.slices
	}
	made := &expansion{p.expand()}
	p.expanded = weak.Make(made)
	return made.slices
}

func (p *Pool) expand() []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	for _, piece := range p.pieces {
		slice := piece.object()
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			if added := p.added(d.Name); len(added) > 0 {
				d.Taints = slices.Concat(d.Taints, added)
			}
		}
		all = append(all, slice)
	}
	return all
}

// added are the taints of rules of a device.
func (p *Pool) added(device string) (taints []resourceapi.DeviceTaint) {
	for _, rule := range p.rules {
		if only := rule.Spec.DeviceSelector.Device; only == nil || *only == device {
			taints = append(taints, rule.Spec.Taint)
		}
	}
	return taints
}
