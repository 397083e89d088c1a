package explain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

// random makes random clusters.
type random struct {
	*rand.Rand
	*world
	nodes []string
	// alike is set if all GPUs of a board are advertised alike.
	alike map[string]gpu.Modes
	// held are the requests of running pods.
	held []*resourceapi.ExactDeviceRequest
}

func pick[T any](r *random, from ...T) T { return from[r.IntN(len(from))] }

// often is true with a probability of 1 in n.
func (r *random) often(n int) bool { return r.IntN(n) == 0 }

// modes are the modes of one GPU of a node with all families.
func (r *random) modes(i int, g *gpu.GPU) gpu.Modes {
	if r.alike == nil {
		return r.anyModes(i, g)
	}
	if _, chosen := r.alike[g.Product.Name]; !chosen {
		r.alike[g.Product.Name] = r.anyModes(i, g)
	}
	return r.alike[g.Product.Name]
}

func (r *random) anyModes(_ int, g *gpu.GPU) gpu.Modes {
	m := gpu.Modes{Whole: !r.often(4)}
	if g.MIG != nil && len(g.MIG.ProfileNames()) > 0 && !g.MIG.Mode.NeedsReset && !r.often(3) {
		m.MIG = pick(r, g.MIG.ProfileNames(), []string{"1g.10gb", "3g.40gb"}, []string{"1g.10gb", "2g.20gb", "1g.20gb"})
	}
	if r.often(2) {
		m.MPS = mpsModes(2+r.IntN(4))(0, g).MPS
	}
	if r.often(2) {
		m.TimeSlice = &gpu.Replicas{Count: 2 + r.IntN(3)}
	}
	if !m.Whole && m.MIG == nil && m.MPS == nil && m.TimeSlice == nil {
		m.Whole = true
	}
	return m
}

// cluster adds nodes, taints and running pods.
func (r *random) cluster() {
	if r.often(2) {
		r.alike = map[string]gpu.Modes{}
	}
	for i := range 1 + r.IntN(3) {
		name := fmt.Sprintf("node-%d", i)
		r.nodes = append(r.nodes, name)
		board := pick(r, "h100-80", "h100-80", "h100-80", "l40s")
		n := Machine(r.t, name, board, 1+r.IntN(2))
		var taints []publish.TaintRule
		switch r.IntN(8) {
		case 0:
			taints = publish.ConflictTaints(publish.ConflictDevicePlugin)
		case 1:
			taints = []publish.TaintRule{{Name: "xid", Value: "79", GPUs: map[gpu.UUID]bool{n.GPUs[r.IntN(len(n.GPUs))].UUID: true}}}
		case 2:
			taints = publish.UnavailableTaints("mps")
		}
		r.node(name, board, len(n.GPUs), r.modes, taints...)
	}
	for i := range r.IntN(3) {
		rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("rule-%d", i)}}
		rule.Spec.Taint = resourceapi.DeviceTaint{Key: "example.com/reserved", Value: pick(r, "a", "b"), Effect: pick(r,
			resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute, resourceapi.DeviceTaintEffectNone)}
		node := r.solver().Cluster.FindNode(pick(r, r.nodes...))
		pool := pick(r, node.Pools...)
		rule.Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{Pool: &pool.Name}
		if s := pool.Slices(); len(s) > 0 && r.often(2) {
			if last := s[len(s)-1].Spec.Devices; len(last) > 0 {
				rule.Spec.DeviceSelector.Device = &last[r.IntN(len(last))].Name
			}
		}
		r.store.PutRule(rule)
	}
	for i := range r.IntN(14) {
		r.running(i)
	}
}

// running adds a claim with one or two pods, if it fits somewhere.
func (r *random) running(i int) {
	name := fmt.Sprintf("run-%d", i)
	requests := []*resourceapi.ExactDeviceRequest{r.request()}
	if r.often(5) {
		requests = append(requests, r.request())
	}
	claim := claimOf("web", name+"-gpu", requests...)
	var pods []*corev1.Pod
	for j := range r.IntN(3) {
		pod := podOf("web", fmt.Sprintf("%s-%d", name, j), claim.Name)
		priority := int32(r.IntN(3)) * 100
		pod.Spec.Priority = &priority
		if r.often(4) {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		pods = append(pods, pod)
	}
	node := pick(r, r.nodes...)
	holds := r.tryHold(node, claim, pods...)
	if holds {
		r.held = append(r.held, requests...)
	}
	if holds && len(pods) > 0 && r.often(3) {
		// A pod with two claims.
		more := claimOf("web", name+"-more", r.request())
		pods[0].Spec.ResourceClaims = append(pods[0].Spec.ResourceClaims, corev1.PodResourceClaim{Name: more.Name, ResourceClaimName: &more.Name})
		r.tryHold(node, more, pods[0])
	}
}

// request is for one device.
func (r *random) request() *resourceapi.ExactDeviceRequest {
	switch r.IntN(9) {
	case 0:
		return request(driver, 1)
	case 1:
		return request("mig-"+pick(r, "1g-10gb", "2g-20gb", "3g-40gb", "1g-20gb")+"."+driver, 1)
	case 2:
		return request("mig."+driver, 1, attr("profile")+` == "`+pick(r, "1g.10gb", "3g.40gb", "4g.40gb", "9g.90gb")+`"`)
	case 3:
		return sized(request("by-capacity."+driver, 1), driver+"/"+pick(r, "p1g10gb", "p3g40gb", "p1g5gb"), "1")
	case 4:
		return sized(request("by-capacity."+driver, 1), driver+"/migMemory", pick(r, "5Gi", "15Gi", "35Gi", "90Gi"))
	case 5:
		return sized(request("mps."+driver, 1), "memory", pick(r, "1Gi", "10Gi", "20Gi", "40Gi", "1500Mi", "100Gi"))
	case 6:
		return request("timeslice."+driver, 1)
	case 7:
		atLeast := fmt.Sprintf(`device.capacity[%q].memory.compareTo(quantity(%q)) >= 0`, driver, pick(r, "8Gi", "30Gi", "60Gi"))
		return request(pick(r, driver, "mig."+driver), 1, atLeast)
	default:
		return request("mps."+driver, 1)
	}
}

// wanted is a claim to explain.
func (r *random) wanted() *resourceapi.ResourceClaim {
	asked := r.request()
	if len(r.held) > 0 && !r.often(3) {
		asked = pick(r, r.held...).DeepCopy()
	}
	claim := claimOf("ml", "wanted", asked)
	first := claim.Spec.Devices.Requests[0].Exactly
	if r.often(4) {
		first.Tolerations = []resourceapi.DeviceToleration{{Key: "example.com/reserved", Operator: resourceapi.DeviceTolerationOpExists}}
	}
	if r.often(8) {
		first.Selectors = append(first.Selectors, selectors(attr("?index.orValue(0)")+` == `+pick(r, "0", "1"))...)
	}
	switch r.IntN(8) {
	case 0:
		first.Count = 2
	case 1:
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{Name: "second", Exactly: r.request()})
	case 2:
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{Name: "second", Exactly: r.request()})
		name := resourceapi.FullyQualifiedName(driver + "/parentUUID")
		claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &name}}
	case 3:
		sub := func(name string) resourceapi.DeviceSubRequest {
			e := r.request()
			return resourceapi.DeviceSubRequest{
				Name: name, DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, AllocationMode: e.AllocationMode, Count: e.Count,
				Capacity: e.Capacity,
			}
		}
		alternatives := []resourceapi.DeviceSubRequest{sub("first"), sub("second")}
		claim.Spec.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: alternatives}
	case 4:
		if r.often(2) {
			first.AllocationMode, first.Count = resourceapi.DeviceAllocationModeAll, 0
		}
	}
	return claim
}

// randomCases is the number of clusters, shortCases the number for quick runs.
const randomCases, shortCases = 1000, 150

// TestPod_RandomClusters_AsTheAllocator: which nodes fit is the allocator's answer; the shown holders are enough, and no set of claims with
// fewer pods is.
func TestPod_RandomClusters_AsTheAllocator(t *testing.T) {
	t.Parallel()
	cases := randomCases
	if testing.Short() {
		cases = shortCases
	}
	seen := map[Cause]int{}
	nearest := 0
	for seed := range uint64(cases) {
		r := &random{Rand: rand.New(rand.NewPCG(seed, 38)), world: newWorld(t)}
		r.cluster()
		claim := r.wanted()
		r.store.PutClaim(claim)
		r.store.PutPod(podOf("ml", "wanted", "wanted"))
		e := r.explain("wanted")
		for _, g := range e.Groups {
			seen[g.Cause] += len(g.Nodes)
		}
		if e.Nearest != nil {
			nearest++
		}
		c := check{t: t, seed: seed, solver: r.solver(), claim: claim, e: e}
		c.verdict()
		c.holders()
		c.calls()
		if t.Failed() {
			return
		}
	}
	t.Log(seen, nearest)
	for _, cause := range []Cause{Fits, InUse, Taint, Selector, Capacity, Count, Requests} {
		assert.NotZero(t, seen[cause], cause)
	}
}

// check checks one explanation.
type check struct {
	t      *testing.T
	seed   uint64
	solver *Solver
	claim  *resourceapi.ResourceClaim
	e      *Explanation
}

func (c *check) fits(node *clusterview.Node, released func(*clusterview.Claim) bool) (bool, error) {
	q := Question{Node: node, Claims: []*resourceapi.ResourceClaim{c.claim}, Released: released}
	found, err := c.solver.Allocate(context.Background(), q)
	if errors.Is(err, structured.ErrFailedAllocationOnNode) {
		err = nil
	}
	return found != nil, err
}

// verdict compares the nodes that fit.
func (c *check) verdict() {
	var want, got []string
	for _, node := range c.solver.Cluster.Nodes {
		fits, err := c.fits(node, nil)
		if err != nil {
			assert.False(c.t, c.e.Fits, "seed %d: %v", c.seed, err)
			return
		}
		if fits {
			want = append(want, node.Name)
		}
	}
	for _, g := range c.e.Groups {
		if g.Cause == Fits {
			got = g.Nodes
		}
	}
	assert.Equal(c.t, want, got, "seed %d", c.seed)
}

// holders checks that the holders are enough, and that no claims with fewer pods are.
func (c *check) holders() {
	if c.e.Fits {
		return
	}
	fewest := 1 << 30
	if n := c.e.Nearest; n != nil {
		var claims []*clusterview.Claim
		for _, h := range n.Holders {
			claim := c.solver.Cluster.FindClaim(h.Namespace, h.Claim)
			require.NotNil(c.t, claim)
			claims = append(claims, claim)
		}
		fits, err := c.fits(c.solver.Cluster.FindNode(n.Node), among(claims))
		require.NoError(c.t, err)
		assert.True(c.t, fits, "seed %d: the claim does not fit without the holders", c.seed)
		fewest = priceOf(claims).pods
	}
	if len(c.claim.Spec.Devices.Requests) > 1 || len(c.claim.Spec.Devices.Constraints) > 0 {
		return
	}
	for _, node := range c.solver.Cluster.Nodes {
		c.noneFewer(node, fewest)
	}
}

// exhaustive is the number of claims on a node of which all sets are tried.
const exhaustive = 8

// noneFewer tries all sets of the claims on a node that have fewer pods.
func (c *check) noneFewer(node *clusterview.Node, fewest int) {
	var claims []*clusterview.Claim
	for _, p := range node.Pools {
		for _, u := range p.Uses {
			if !slices.Contains(claims, u.Claim) {
				claims = append(claims, u.Claim)
			}
		}
	}
	if len(claims) > exhaustive {
		return
	}
	for set := range 1 << len(claims) {
		var released []*clusterview.Claim
		for i, claim := range claims {
			if set&(1<<i) != 0 {
				released = append(released, claim)
			}
		}
		pods := priceOf(released).pods
		if pods >= fewest {
			continue
		}
		fits, err := c.fits(node, among(released))
		if !assert.False(c.t, err == nil && fits, "seed %d: the claim fits on %s without %d pods; found %d", c.seed, node.Name, pods, fewest) {
			return
		}
	}
}

// calls checks the number of calls of the allocator for a request for one device: at most three for each distinct pool.
func (c *check) calls() {
	s := NewSolver(c.solver.Cluster, latest)
	r := newRun(s, Options{Driver: driver})
	a := r.asked([]*resourceapi.ResourceClaim{c.claim})
	if a.one == nil {
		return
	}
	var places []place
	for _, node := range s.Cluster.Nodes {
		places = append(places, place{node: node, asked: a})
	}
	r.askNodes(context.Background(), places)
	assert.LessOrEqual(c.t, s.Calls, 3*len(r.pools[a.one]), "seed %d", c.seed)
}
