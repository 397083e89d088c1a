package explain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// otherDriver is a driver with devices of nodes and with pools that several nodes share.
const otherDriver = "fabric.example.com"

// others adds the devices of another driver: one or two on each node, and a pool of all nodes.
func (r *random) others() {
	r.class(otherDriver, fmt.Sprintf("device.driver == %q", otherDriver))
	r.class("any")
	r.class("strict", fmt.Sprintf("device.attributes[%q].speed > 1", otherDriver))
	all := true
	add := func(pool string, node *string, count int) {
		s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "other-" + pool}}
		s.Spec = resourceapi.ResourceSliceSpec{
			Driver: otherDriver, NodeName: node, Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
		}
		if node == nil {
			s.Spec.AllNodes = &all
		}
		for i := range count {
			speed := int64(i)
			d := resourceapi.Device{Name: fmt.Sprintf("nic-%d", i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"speed": {IntValue: &speed},
			}}
			if r.often(6) {
				d.Taints = []resourceapi.DeviceTaint{{Key: "example.com/reserved", Value: "a", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
			}
			if i == 1 && r.often(6) {
				d.Attributes = nil
			}
			s.Spec.Devices = append(s.Spec.Devices, d)
		}
		if r.often(12) {
			s.Spec.Pool.ResourceSliceCount = 2
		}
		r.slice(s)
	}
	for _, node := range r.nodes {
		if !r.often(3) {
			add(node, &node, 1+r.IntN(2))
		}
	}
	if r.often(2) {
		add("zz-shared", nil, 1+r.IntN(3))
	}
	for i := range r.IntN(3) {
		r.tryHold(pick(r, r.nodes...), claimOf("web", fmt.Sprintf("nic-%d", i), request(otherDriver, 1)))
	}
}

// hard makes a request of the kinds that the other property test lacks.
func (r *random) hard() *resourceapi.ExactDeviceRequest {
	yes := true
	var e *resourceapi.ExactDeviceRequest
	switch r.IntN(6) {
	case 0:
		e = request(otherDriver, 1)
	case 1:
		e = request("any", 1)
	case 2:
		e = request(pick(r, "strict", otherDriver), 1)
	default:
		e = r.request()
	}
	switch r.IntN(7) {
	case 0:
		e.AllocationMode, e.Count = resourceapi.DeviceAllocationModeAll, 0
	case 1:
		e.AdminAccess = &yes
	case 2:
		e.Count = int64(2 + r.IntN(3))
	}
	if r.often(5) {
		e.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	}
	return e
}

func (r *random) hardClaim(name string) *resourceapi.ResourceClaim {
	var requests []*resourceapi.ExactDeviceRequest
	for range 1 + r.IntN(3) {
		requests = append(requests, r.hard())
	}
	claim := claimOf("ml", name, requests...)
	if r.often(3) {
		alternatives := []resourceapi.DeviceSubRequest{}
		for i := range 2 + r.IntN(2) {
			e := r.hard()
			alternatives = append(alternatives, resourceapi.DeviceSubRequest{
				Name: fmt.Sprint("sub", i), DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, AllocationMode: e.AllocationMode,
				Count: e.Count, Capacity: e.Capacity, Tolerations: e.Tolerations,
			})
		}
		claim.Spec.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: alternatives}
	}
	if r.often(3) {
		attribute := resourceapi.FullyQualifiedName(driver + "/" + pick(r, "parentUUID", "uuid", "productName", "type"))
		if r.often(3) {
			claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{DistinctAttribute: &attribute}}
		} else {
			claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
		}
	}
	return claim
}

// hardCases is the number of clusters. Further seeds made earlier versions fail.
const hardCases = 60

// TestPod_HardClaims_AsTheAllocator: two drivers, shared and incomplete pools, all devices, admin access, subrequests, constraints, errors of
// expressions, and pods with several claims.
func TestPod_HardClaims_AsTheAllocator(t *testing.T) {
	t.Parallel()
	seeds := []uint64{150, 272, 534, 836, 887, 897, 1137}
	for seed := range uint64(hardCases) {
		seeds = append(seeds, seed)
	}
	for i, seed := range seeds {
		r := &random{Rand: rand.New(rand.NewPCG(seed, 91)), world: newWorld(t)}
		if i >= len(seeds)-hardCases/2 {
			r.features = pick(r, structured.Features{AdminAccess: true, PrioritizedList: true}, structured.Features{
				AdminAccess: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true,
			})
		}
		r.cluster()
		r.others()
		var claims []*resourceapi.ResourceClaim
		var names []string
		for i := range 1 + r.IntN(2) {
			c := r.hardClaim(fmt.Sprint("wanted-", i))
			claims, names = append(claims, c), append(names, c.Name)
			r.store.PutClaim(c)
		}
		r.store.PutPod(podOf("ml", "wanted", names...))
		if !sameVerdict(t, r.solver(), claims, r.explain("wanted")) {
			t.Errorf("seed %d", seed)
		}
	}
}

// sameVerdict compares the nodes that fit, and the holders, with the allocator's answers.
func sameVerdict(t *testing.T, s *Solver, claims []*resourceapi.ResourceClaim, e *Explanation) bool {
	if !assert.NotEmpty(t, e.Groups, e.Sentence) {
		return false
	}
	var want, got []string
	for _, node := range s.Cluster.Nodes {
		found, err := s.Allocate(t.Context(), Question{Node: node, Claims: claims})
		if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
			// The allocator of 1.35 tries pools in a random order, and may find devices before the one on which an expression fails.
			return !s.Features.PartitionableDevices || assert.False(t, e.Fits, "the scheduler stops: %v", err)
		}
		if found != nil {
			want = append(want, node.Name)
		}
	}
	for _, g := range e.Groups {
		if g.Cause == Fits {
			got = append(got, g.Nodes...)
		}
	}
	if !assert.Equal(t, want, got, "%+v", e.Groups) {
		return false
	}
	if e.Nearest == nil {
		return true
	}
	var holders []*clusterview.Claim
	for _, h := range e.Nearest.Holders {
		holders = append(holders, s.Cluster.FindClaim(h.Namespace, h.Claim))
	}
	found, err := s.Allocate(t.Context(), Question{Node: s.Cluster.FindNode(e.Nearest.Node), Claims: claims, Released: among(holders)})
	return assert.NoError(t, err) && assert.NotNil(t, found, "the claims do not fit without the holders")
}

// TestPod_MoreThanAClaimCanHave_Count: the scheduler tries no node, and no expression is wrong.
func TestPod_MoreThanAClaimCanHave_Count(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("gpu-a01", "h100-80", 2, migModes())
	all := request("mig."+driver, 0)
	all.AllocationMode = resourceapi.DeviceAllocationModeAll
	e := w.pending("train-0", all)
	require.Len(t, e.Groups, 1)
	assert.Equal(t, Count, e.Groups[0].Cause)
	assert.Equal(t, "the requests of a claim are for more than 32 devices on node gpu-a01, the most that a claim can have: the scheduler tries "+
		"no other node", e.Groups[0].Detail)
}

// TestPod_TimeForAllNodesOver_RestNotSearched: an expensive claim does not take the time of a node on each of them.
func TestPod_TimeForAllNodesOver_RestNotSearched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("gpu-a01", "h100-80", 1, whole)
	w.node("gpu-a02", "l40s", 1, whole)
	w.use("gpu-a01", "web", "a", request(driver, 1))
	w.store.PutClaim(claimOf("ml", "train-0-gpu", request(driver, 1)))
	w.store.PutPod(podOf("ml", "train-0", "train-0-gpu"))
	o := w.options()
	end := func() {}
	o.Total = func(ctx context.Context) (context.Context, context.CancelFunc) {
		limited, cancel := context.WithCancel(ctx)
		end = cancel
		return limited, cancel
	}
	o.PerNode = func(ctx context.Context) (context.Context, context.CancelFunc) {
		end() // the first node takes all the time
		return context.WithCancel(ctx)
	}
	e, err := w.ask("train-0", o)
	require.NoError(t, err)
	require.Len(t, e.Groups, 1)
	assert.Equal(t, SearchTooLong, e.Groups[0].Cause)
	assert.Equal(t, []string{"gpu-a01", "gpu-a02"}, e.Groups[0].Nodes)
	assert.Equal(t, []string{"The search for holders and changes ended before all were tried: it takes too long"}, e.Notes)
}

// TestPod_TimeForNodeOver_OthersSearched: the limit of a node ends the search on this node alone, for one device and for several.
func TestPod_TimeForNodeOver_OthersSearched(t *testing.T) {
	t.Parallel()
	for _, count := range []int64{1, 2} {
		w := newWorld(t)
		w.node("gpu-a01", "h100-80", 2, whole)
		w.node("gpu-a02", "l40s", 2, whole)
		w.store.PutClaim(claimOf("ml", "train-0-gpu", request(driver, count)))
		w.store.PutPod(podOf("ml", "train-0", "train-0-gpu"))
		o := w.options()
		nodes := 0
		o.PerNode = func(ctx context.Context) (context.Context, context.CancelFunc) {
			limited, cancel := context.WithCancel(ctx)
			if nodes++; nodes == 1 {
				cancel()
			}
			return limited, cancel
		}
		e, err := w.ask("train-0", o)
		require.NoError(t, err)
		assert.Equal(t, []Group{{Cause: Fits, Nodes: []string{"gpu-a02"}}, {Cause: SearchTooLong, Nodes: []string{"gpu-a01"}}}, e.Groups)
		assert.Empty(t, e.Notes)
	}
}

// TestPod_CallerEnds_Error: without a limit of the options, the end of the caller's context is an error.
func TestPod_CallerEnds_Error(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("gpu-a01", "l40s", 1, whole)
	w.store.PutClaim(claimOf("ml", "train-0-gpu", request(driver, 1)))
	w.store.PutPod(podOf("ml", "train-0", "train-0-gpu"))
	s := w.solver()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Pod(ctx, s, s.Cluster.FindPod("ml", "train-0"), Options{Driver: driver, Now: now})
	require.ErrorIs(t, err, context.Canceled)
}

// TestPod_SharedPool_ChangesConsiderIt: a free device that several nodes reach is a way out too, and counts once.
func TestPod_SharedPool_ChangesConsiderIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := Machine(t, "shared", "h100-80", 1)
	layout := gpu.Layout{n.GPUs[0].UUID: migModes()(0, &n.GPUs[0])}
	all := true
	for _, slice := range Published(publish.Options{DriverName: driver, NodeName: "shared", Layout: layout}, n) {
		slice.Spec.NodeName, slice.Spec.AllNodes = nil, &all
		w.slice(slice)
	}
	w.object("gpu-a01", func(*corev1.Node) {})
	w.object("gpu-a02", func(*corev1.Node) {})
	w.use("gpu-a01", "web", "a", request("mig-3g-40gb."+driver, 1))
	w.use("gpu-a01", "web", "b", request("mig-1g-20gb."+driver, 1))
	e := w.pending("train-0", request("mig-3g-40gb."+driver, 1))
	require.False(t, e.Fits)
	assert.Contains(t, e.Changes, Change{"request 2g.20gb: 1 free now"})
}

// TestPod_FirstNodeHasFurtherTaint_TolerationForTheSecond: on the first node, the toleration of the common taint alone does not help.
func TestPod_FirstNodeHasFurtherTaint_TolerationForTheSecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("gpu-a01", "l40s", 1, whole)
	w.node("gpu-a02", "l40s", 1, whole)
	name, first := driver, w.solver().Cluster.FindNode("gpu-a01").Pools[0].Name
	for rule, selector := range map[string]resourceapi.DeviceTaintSelector{"reserved": {Driver: &name}, "broken": {Pool: &first}} {
		w.store.PutRule(&resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: rule}, Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &selector,
			Taint:          resourceapi.DeviceTaint{Key: "example.com/" + rule, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		}})
	}
	e := w.pending("train-0", request(driver, 1))
	assert.Equal(t, []Change{{"tolerate the taint example.com/reserved:NoSchedule: fits on node gpu-a02"}}, e.Changes)
}

// TestPod_LongExpressions_Shortened: a claim may have 32 expressions of 10 KiB, which an administrator reads.
func TestPod_LongExpressions_Shortened(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("gpu-a01", "l40s", 1, whole)
	var all []string
	for i := range resourceapi.DeviceSelectorsMaxSize {
		all = append(all, fmt.Sprintf("%d > 0 || %s == %q", i, attr("type"), strings.Repeat("long ", 1000)))
	}
	all[0] = attr("type") + ` == "` + strings.Repeat("long ", 1000) + `"`
	e := w.pending("train-0", request(driver, 1, all...))
	require.Len(t, e.Requests, 1)
	require.Len(t, e.Groups, 1)
	assert.Equal(t, Selector, e.Groups[0].Cause)
	assert.Less(t, len(e.Requests[0]), 1000, e.Requests[0])
	assert.Less(t, len(e.Groups[0].Detail), 1000, e.Groups[0].Detail)
	assert.Contains(t, e.Requests[0], "(29 more)")
}

// TestPod_UnknownUUID_NodesShareARow: the UUIDs of each node are no reason for a row of its own.
func TestPod_UnknownUUID_NodesShareARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("gpu-a01", "l40s", 2, whole)
	w.node("gpu-a02", "l40s", 2, whole)
	e := w.pending("train-0", request(driver, 1, attr("uuid")+` == "GPU-none"`))
	require.Len(t, e.Groups, 1, "%+v", e.Groups)
	assert.Equal(t, `uuid == "GPU-none": uuid is another (NVIDIA L40S)`, e.Groups[0].Detail)
}
