package clusterview_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/test/allocator"
)

// allocated returns a claim that holds devices.
func allocated(name string, results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID(name)}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}
	return claim
}

// share is the result for a share of a device with that much memory.
func share(p *clusterview.Pool, device, id, memory string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{
		Driver: p.Driver, Pool: p.Name, Device: device, ShareID: new(types.UID(id)),
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory), "shares": resource.MustParse("1")},
	}
}

func whole(p *clusterview.Pool, device string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Driver: p.Driver, Pool: p.Name, Device: device}
}

// devices returns the names of the devices of a pool.
func devices(p *clusterview.Pool) (names []string) {
	for _, slice := range p.Slices() {
		for i := range slice.Spec.Devices {
			names = append(names, slice.Spec.Devices[i].Name)
		}
	}
	return names
}

// nodesOf returns a store with n nodes of the same machine.
func nodesOf(t testing.TB, machine string, n int) *clusterview.Store {
	t.Helper()
	store, read := clusterview.NewStore(), published(t, machine)
	for node := range n {
		for _, slice := range renamed(t, read, node) {
			store.PutSlice(slice)
		}
	}
	return store
}

func TestKey_OtherAllocations_Differ(t *testing.T) {
	t.Parallel()
	for _, machine := range []string{"h100-80", "mig-h100-80", "mps-h100-80", "timeslice-h100-80"} {
		store := nodesOf(t, machine, 7)
		c := store.Cluster()
		last := func(node int) *clusterview.Pool { return c.Nodes[node].Pools[len(c.Nodes[node].Pools)-1] }
		device := func(node int) string { return devices(last(node))[0] }
		// node 0 is free, 1 has a device in use, 2 to 4 share a device with different memory, 5 is like 2, 6 has admin access.
		store.PutClaim(allocated("one", whole(last(1), device(1))))
		store.PutClaim(allocated("a", share(last(2), device(2), "a", "1Gi"), share(last(2), device(2), "b", "2Gi")))
		store.PutClaim(allocated("b", share(last(3), device(3), "a", "1Gi"), share(last(3), device(3), "b", "3Gi")))
		store.PutClaim(allocated("c", share(last(4), device(4), "a", "3Gi")))
		store.PutClaim(allocated("d", share(last(5), device(5), "c", "2Gi"), share(last(5), device(5), "d", "1Gi")))
		admin := whole(last(6), device(6))
		admin.AdminAccess = new(true)
		store.PutClaim(allocated("admin", admin))
		c = store.Cluster()
		keys := map[string][]int{}
		for i := range c.Nodes {
			keys[last(i).Key(clusterview.Reads{})] = append(keys[last(i).Key(clusterview.Reads{})], i)
		}
		var groups [][]int
		for _, nodes := range keys {
			groups = append(groups, nodes)
		}
		assert.ElementsMatch(t, [][]int{{0, 6}, {1}, {2, 5}, {3}, {4}}, groups, machine)
	}
}

func TestKey_RulesReadsAndStates_Differ(t *testing.T) {
	t.Parallel()
	store := nodesOf(t, "mig-h100-80", 4)
	first := store.Cluster().Nodes[0].Pools[1]
	put := func(name string, selector resourceapi.DeviceTaintSelector) {
		store.PutRule(&resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &selector, Taint: resourceapi.DeviceTaint{Key: "k", Effect: resourceapi.DeviceTaintEffectNoSchedule},
		}})
	}
	equal := func(a, b int, reads clusterview.Reads) bool {
		c := store.Cluster()
		return c.Nodes[a].Pools[1].Key(reads) == c.Nodes[b].Pools[1].Key(reads)
	}
	none := clusterview.Reads{}
	require.True(t, equal(0, 1, none))
	put("one", resourceapi.DeviceTaintSelector{Device: new(devices(first)[0])})
	assert.False(t, equal(0, 1, none), "a rule for one device")
	put("one", resourceapi.DeviceTaintSelector{Device: new("gpu-ffffffff")})
	assert.True(t, equal(0, 1, none), "a rule for no device")
	put("one", resourceapi.DeviceTaintSelector{Pool: &first.Name})
	assert.False(t, equal(0, 1, none), "a rule for one pool")
	store.DeleteRule("one")
	assert.True(t, equal(0, 1, none))
	store.DeleteSlice(store.Cluster().Nodes[2].Pools[1].Slices()[0].Name)
	assert.False(t, equal(1, 2, none), "an incomplete pool")

	uuid := map[resourceapi.QualifiedName]bool{driver + "/uuid": true}
	assert.False(t, equal(0, 1, clusterview.Reads{Values: uuid}))
	assert.False(t, equal(0, 1, clusterview.Reads{All: true}))
	assert.True(t, equal(0, 1, clusterview.Reads{Equal: uuid}), "all devices of a pool are of another GPU")
	assert.True(t, equal(0, 1, clusterview.Reads{Values: map[resourceapi.QualifiedName]bool{"nic.example.com/uuid": true}}))
	assert.True(t, clusterview.Identity("resource.kubernetes.io/pcieRoot"))
	assert.False(t, clusterview.Identity(driver+"/productName"))
}

func TestNodeKey_ComparedAttributes_OnlyEqualityMatters(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	// Each node has two pools with a GPU, which have these roots.
	for node, roots := range [][]string{{"a", "a"}, {"b", "b"}, {"a", "b"}, {"c", "d"}} {
		for i, root := range roots {
			name, gpu := fmt.Sprintf("n%d-%d", node, i), "gpu-0"
			if node == 1 { // names of GPUs of several pools are not compared
				gpu = fmt.Sprint("gpu-", i)
			}
			store.PutSlice(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: new(fmt.Sprint("n", node)), Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1},
				Devices: []resourceapi.Device{{Name: gpu, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"resource.kubernetes.io/pcieRoot": {StringValue: &root},
				}}},
			}})
		}
	}
	c := store.Cluster()
	root := map[resourceapi.QualifiedName]bool{"resource.kubernetes.io/pcieRoot": true}
	key := func(i int, reads clusterview.Reads) string { return c.Nodes[i].Key(reads) }
	assert.Equal(t, key(0, clusterview.Reads{}), key(2, clusterview.Reads{}))
	assert.Equal(t, key(0, clusterview.Reads{Equal: root}), key(1, clusterview.Reads{Equal: root}))
	assert.Equal(t, key(2, clusterview.Reads{Equal: root}), key(3, clusterview.Reads{Equal: root}))
	assert.NotEqual(t, key(0, clusterview.Reads{Equal: root}), key(2, clusterview.Reads{Equal: root}))
	assert.NotEqual(t, key(0, clusterview.Reads{Values: root}), key(1, clusterview.Reads{Values: root}))
}

func TestNodeKey_RuleReadsLikeAnotherPool_Differs(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	put := func(node, name, device string, attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) {
		store.PutSlice(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: device, Attributes: attributes}},
		}})
	}
	put("n1", "p1", "gpu-1", nil)
	put("n2", "p2", "gpu-1", nil)
	for i := range 'b'/2 - 2 { // the number of the next pool's content is encoded as this letter
		put("other", fmt.Sprint("o", i), fmt.Sprint("device-", i), nil)
	}
	root := resourceapi.QualifiedName("resource.kubernetes.io/pcieRoot")
	put("n2", "p3", "gpu-1", map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{root: {StringValue: new("a")}})
	store.PutRule(&resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: new("p1"), Device: new("b")},
	}})
	c := store.Cluster()
	reads := clusterview.Reads{Equal: map[resourceapi.QualifiedName]bool{root: true}}
	assert.NotEqual(t, c.FindNode("n1").Key(reads), c.FindNode("n2").Key(reads))
}

// classes is a lister of DeviceClasses.
type classes map[string]*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) { return c[name], nil }

// everything is a class of all devices.
var everything = classes{"any": {ObjectMeta: metav1.ObjectMeta{Name: "any"}}}

// answer asks the allocator for a device, and describes it without the name of the GPU.
func answer(t *testing.T, cache *cel.Cache, p *clusterview.Pool, expression string) string {
	t.Helper()
	state := allocator.Nothing()
	for _, use := range p.Uses {
		id := structured.MakeDeviceID(p.Driver, p.Name, use.Result.Device)
		if use.Result.ShareID == nil {
			state.Devices.Insert(id)
			continue
		}
		state.Shares.Insert(structured.MakeSharedDeviceID(id, use.Result.ShareID))
		state.Consumed.Insert(structured.NewDeviceConsumedCapacity(id, use.Result.ConsumedCapacity))
	}
	a, err := allocator.New(t.Context(), allocator.Features, state, everything, p.Slices(), cache)
	require.NoError(t, err)
	claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: "any", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
		}}},
	}}}
	found, err := a.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Node.Name}}, []*resourceapi.ResourceClaim{claim})
	if err != nil || len(found) == 0 {
		return "none"
	}
	device := found[0].Devices.Results[0].Device
	gpus := []string{}
	for _, name := range devices(p) {
		if own := clusterview.NameOf(name); !slices.Contains(gpus, own) {
			gpus = append(gpus, own)
		}
	}
	return fmt.Sprint(slices.Index(gpus, clusterview.NameOf(device)), strings.TrimPrefix(device, clusterview.NameOf(device)))
}

func TestKey_EqualPools_SameAnswerOfAllocator(t *testing.T) {
	t.Parallel()
	r, cache := newRandom(3), newCache()
	for _, machine := range []string{"mig-h100-80", "mps-h100-80", "timeslice-static"} {
		store := nodesOf(t, machine, 40)
		for i, p := range pools(store.Cluster()) {
			if names := devices(p); len(names) > 0 {
				device := names[r.IntN(min(3, len(names)))]
				result := whole(p, device)
				if r.chance() {
					result = share(p, device, "s", r.pick("0", "1Gi", "79Gi"))
				}
				store.PutClaim(allocated(fmt.Sprint("c", i), result))
			}
		}
		byKey := map[string]map[string]string{}
		asked := 0
		for _, p := range pools(store.Cluster()) {
			key := p.Key(clusterview.Reads{})
			for _, expression := range []string{"true", `device.attributes["gpu.prism.dev"].type == "mig"`, `device.attributes["gpu.prism.dev"].type != "gpu"`} {
				got := answer(t, cache, p, expression)
				if byKey[key] == nil {
					byKey[key] = map[string]string{}
				}
				if want, found := byKey[key][expression]; found {
					require.Equal(t, want, got, "%s, pool %s: %s", machine, p.Name, expression)
				}
				byKey[key][expression] = got
				asked++
			}
		}
		assert.Less(t, len(byKey), asked/6, "%s: most pools have a key of their own", machine)
	}
}

func newCache() *cel.Cache { return cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}) }
