package explain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// RoomLimit is the largest number of claims that is counted for a pool: a shared device without a policy has room for claims without end.
const RoomLimit = 1000

// Room is how many further claims for one device fit, placed one after the other by the scheduler's allocator. Each Room counts alone: a
// claim of one class can take the place of a claim of another class.
type Room struct {
	Class string `json:"class"`
	// Capacity is the capacity, with the value 1, that a claim requests of a class without selectors: "gpu.prism.dev/p1g10gb"; else "".
	Capacity string `json:"capacity,omitempty"`
	// Resource is the extended resource that the class is for, if any.
	Resource string `json:"extendedResourceName,omitempty"`
	// Total is the sum over the nodes, and the devices that several nodes reach.
	Total int `json:"total"`
	// Nodes are the nodes where at least one claim fits, by name. Devices that several nodes reach are counted with the name "".
	Nodes []NodeRoom `json:"nodes"`
	// Unlimited reports that the count ended at RoomLimit in a pool.
	Unlimited bool `json:"unlimited,omitempty"`
	// Problem is why the scheduler places no claim of this class, such as an expression that fails.
	Problem string `json:"problem,omitempty"`
}

// NodeRoom is the room of a node.
type NodeRoom struct {
	Node  string `json:"node"`
	Count int    `json:"count"`
}

// Free is the answer to "how much is left".
type Free struct {
	Rooms    []Room   `json:"classes"`
	Stranded Stranded `json:"unusable"`
	// Cordoned are unschedulable nodes with devices. They are not counted.
	Cordoned []string `json:"cordoned,omitempty"`
}

// FreeCapacity counts how many further claims of DeviceClasses fit. An error means that the context has ended.
func FreeCapacity(ctx context.Context, s *Solver, driver string, classes []string) (*Free, error) {
	free := &Free{}
	c := &roomCount{Solver: s, driver: driver, matcher: newMatcher(s.cel), keys: poolKeys{}}
	for _, node := range s.Cluster.Nodes {
		if len(node.Pools) == 0 {
			continue
		}
		if node.Object != nil && node.Object.Spec.Unschedulable {
			free.Cordoned = append(free.Cordoned, node.Name)
			continue
		}
		c.nodes = append(c.nodes, node)
	}
	for _, name := range classes {
		rooms, err := c.class(ctx, name)
		if err != nil {
			return nil, err
		}
		free.Rooms = append(free.Rooms, rooms...)
	}
	if s.Features.PartitionableDevices {
		known := map[string]Stranded{}
		for _, node := range c.nodes {
			for _, p := range node.Pools {
				key := c.keys.of(p, clusterview.Reads{})
				if _, found := known[key]; !found {
					known[key] = stranded(p, s.Features)
				}
				free.Stranded.add(known[key])
			}
		}
	}
	return free, nil
}

// ClassesOf returns the DeviceClasses for devices of a driver, by name: the classes with the driver's name in a selector, and the driver's
// class without selectors. Monitor devices have room for each administrator, so their class is not among them.
func ClassesOf(cluster *clusterview.Cluster, driver string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(cluster.Classes)) {
		class := cluster.Classes[name]
		ours := name == byCapacity+driver && len(class.Spec.Selectors) == 0
		for _, selector := range class.Spec.Selectors {
			ours = ours || selector.CEL != nil && strings.Contains(selector.CEL.Expression, `"`+driver+`"`)
		}
		if ours && name != "monitor."+driver {
			names = append(names, name)
		}
	}
	return names
}

// byCapacity begins the name of the chart's class without selectors.
const byCapacity = "by-capacity."

// roomCount counts room on nodes.
type roomCount struct {
	*Solver
	driver  string
	matcher *matcher
	keys    poolKeys
	nodes   []*clusterview.Node
}

// class counts the claims for a class, or of a class without selectors the claims for each capacity that only MIG devices of a profile have.
func (c *roomCount) class(ctx context.Context, name string) (rooms []Room, err error) {
	class := c.Cluster.Classes[name]
	if class == nil {
		return []Room{{Class: name, Problem: "the DeviceClass does not exist"}}, nil
	}
	capacities := []string{""}
	if len(class.Spec.Selectors) == 0 {
		if found := c.profileCapacities(); len(found) > 0 {
			capacities = found
		} else if name == byCapacity+c.driver {
			capacities = nil // without the capacities, the admission policy of this class refuses all claims
		}
	}
	for _, capacity := range capacities {
		room, err := c.room(ctx, class, capacity)
		if err != nil {
			return nil, err
		}
		rooms = append(rooms, *room)
	}
	return rooms, nil
}

// profileCapacities returns the names of the capacities that only MIG devices of one profile have.
func (c *roomCount) profileCapacities() []string {
	names := map[string]bool{}
	for _, node := range c.nodes {
		for _, p := range node.Pools {
			if p.Driver != c.driver {
				continue
			}
			for _, slice := range p.Slices() {
				for i := range slice.Spec.Devices {
					for name := range slice.Spec.Devices[i].Capacity {
						if strings.HasPrefix(string(name), c.driver+"/p") {
							names[string(name)] = true
						}
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// room counts the claims with one request for one device. Its devices are of one pool, and pools share no counters, so that each pool counts
// alone, equal pools once.
func (c *roomCount) room(ctx context.Context, class *resourceapi.DeviceClass, capacity string) (*Room, error) {
	room := &Room{Class: class.Name, Capacity: capacity, Nodes: []NodeRoom{}}
	if class.Spec.ExtendedResourceName != nil {
		room.Resource = *class.Spec.ExtendedResourceName
	}
	claim := claimFor(class.Name, capacity)
	reads := c.reads(c.matcher, []*resourceapi.ResourceClaim{claim})
	known := map[string]int{}
	add := func(node *clusterview.Node, p *clusterview.Pool) (int, error) {
		key := c.keys.of(p, reads)
		count, found := known[key]
		if !found {
			var err error
			if count, err = c.pool(ctx, node, p, claim); err != nil {
				return 0, err
			}
			known[key] = count
		}
		room.Unlimited = room.Unlimited || count == RoomLimit
		return count, nil
	}
	for _, node := range c.nodes {
		sum := 0
		for _, p := range node.Pools {
			count, err := add(node, p)
			if err != nil {
				return room.failed(ctx, node, err)
			}
			sum += count
		}
		room.add(node.Name, sum)
	}
	for _, p := range c.Cluster.Shared {
		most := 0
		for _, node := range c.nodes {
			count, err := c.pool(ctx, node, p, claim)
			if err != nil {
				return room.failed(ctx, node, err)
			}
			if most = max(most, count); most > 0 {
				break
			}
		}
		room.add("", most)
	}
	return room, nil
}

// add adds the claims that fit on a node.
func (r *Room) add(node string, count int) {
	r.Total += count
	if count > 0 {
		r.Nodes = append(r.Nodes, NodeRoom{node, count})
	}
}

// failed is the room of a class about which the allocator reports an error: the scheduler then tries no other node.
func (r *Room) failed(ctx context.Context, node *clusterview.Node, err error) (*Room, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r.Total, r.Nodes, r.Problem = 0, []NodeRoom{}, fmt.Sprintf("on node %s: %v", node.Name, err)
	return r, nil
}

// pool returns how many claims get a device of a pool, one after the other.
func (c *roomCount) pool(ctx context.Context, node *clusterview.Node, p *clusterview.Pool, claim *resourceapi.ResourceClaim) (int, error) {
	q := Question{Node: node, Pools: []*clusterview.Pool{p}, Claims: []*resourceapi.ResourceClaim{claim}}
	for count := range RoomLimit {
		found, err := c.Allocate(ctx, q)
		if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
			return 0, err
		}
		if found == nil {
			return count, nil
		}
		q.More = append(q.More, found[0].Devices.Results...)
	}
	return RoomLimit, nil
}

// claimFor returns a claim for one device of a class, with the value 1 of a capacity unless its name is "".
func claimFor(class, capacity string) *resourceapi.ResourceClaim {
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
	}
	if capacity != "" {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			resourceapi.QualifiedName(capacity): *resource.NewQuantity(1, resource.DecimalSI),
		}}
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", UID: "one"},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "device", Exactly: exactly}}}},
	}
}
