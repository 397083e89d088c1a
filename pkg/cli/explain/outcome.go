package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// outcome is the result for a pool or a node.
type outcome struct {
	cause Cause
	// detail is the detail of a cause without one of the following.
	detail string
	// selector is set for Selector and NoDevices: the part that excludes all devices.
	selector exclusion
	// lacks is set for Capacity.
	lacks lack
	// inUse: a device without taints that the request does not tolerate is free if claims are released; confirmed by the allocator.
	inUse bool
	// held says in which way devices are in use.
	held string
	// taints are the taints of free devices; confirmed by the allocator. Both are set for both causes.
	taints map[string]bool
	// tolerable are the taints among them that are not Prism's own.
	tolerable []resourceapi.DeviceTaint
	// fatal is an error that stops the search on all nodes.
	fatal error
}

// heldDevices is the way in which devices of several types are in use.
const heldDevices = "every matching device is in use"

// lack is a capacity that no device has, or not as much of it.
type lack struct {
	name resourceapi.QualifiedName
	// exists: devices have the capacity; most is the device with the most of it.
	exists bool
	most   resourceapi.DeviceCapacity
	// names are the capacities that devices have if none has the requested one.
	names map[resourceapi.QualifiedName]bool
}

// rank orders the causes: the higher, the nearer to success.
var rank = map[Cause]int{}

func init() {
	for i, cause := range []Cause{
		ClassMissing, ExpressionError, NoDevices, PoolIncomplete, Selector, Capacity, Count, Constraint, Requests,
		// The devices of nodes that refuse the pod are not examined.
		NodeUnschedulable, NodeTaint, NodeAffinity, NodeResources,
		Taint, InUse, SearchTooLong, Fits,
	} {
		rank[cause] = i + 1
	}
}

// merge combines the outcomes of two pools of a node: the one that got further, with the ways out of both.
func (o *outcome) merge(other *outcome) *outcome {
	further, behind := o, other
	switch {
	case rank[o.cause] < rank[other.cause], o.cause == other.cause && o.selector.step < other.selector.step:
		further, behind = other, o
	}
	merged := *further
	if further.cause == behind.cause && further.selector.step == behind.selector.step {
		merged.selector.left = slices.Concat(further.selector.left, behind.selector.left)
		merged.lacks = further.lacks.merge(behind.lacks)
	}
	merged.inUse = further.inUse || behind.inUse
	switch {
	case further.held == "":
		merged.held = behind.held
	case behind.held != "" && behind.held != further.held:
		merged.held = heldDevices
	}
	merged.taints = maps.Clone(further.taints)
	if merged.taints == nil {
		merged.taints = map[string]bool{}
	}
	maps.Copy(merged.taints, behind.taints)
	merged.tolerable = slices.Concat(further.tolerable, behind.tolerable)
	return &merged
}

// merge keeps the larger capacity.
func (l lack) merge(other lack) lack {
	switch {
	case other.name == "" || l.exists && !other.exists:
		return l
	case l.name == "" || other.exists && !l.exists:
		return other
	}
	merged := l
	if l.exists && l.most.Value.Cmp(other.most.Value) < 0 {
		merged.most = other.most
	}
	merged.names = maps.Clone(l.names)
	if merged.names == nil {
		merged.names = map[resourceapi.QualifiedName]bool{}
	}
	maps.Copy(merged.names, other.names)
	return merged
}

// list joins texts: "a, b (2 more)".
func list(texts []string, most int) string { return listWith(texts, ", ", most) }

// listWith joins texts with another separator.
func listWith(texts []string, separator string, most int) string {
	if len(texts) <= most {
		return strings.Join(texts, separator)
	}
	return strings.Join(texts[:most], separator) + fmt.Sprintf(" (%d more)", len(texts)-most)
}
