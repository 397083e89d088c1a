package explain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestSearch_RandomConditions_Cheapest compares the search with all sets of claims. Claims have weights, of which some must be released;
// pods may have several claims.
func TestSearch_RandomConditions_Cheapest(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		claims, weights := randomClaims(r)
		need := []int{r.IntN(8), r.IntN(8)}
		enough := func(released []bool) bool {
			left := []int{need[0], need[1]}
			for i, is := range released {
				if is {
					left[weights[i]%2] -= weights[i]
				}
			}
			return left[0] <= 0 && left[1] <= 0
		}
		s := search{claims: claims, enough: enough, calls: 10000, alike: func(i int) string { return fmt.Sprint(weights[i]) }}
		got, found := s.run()
		best, possible := price{}, false
		for set := range 1 << len(claims) {
			released := make([]bool, len(claims))
			var chosen []*clusterview.Claim
			for i := range claims {
				if released[i] = set&(1<<i) != 0; released[i] {
					chosen = append(chosen, claims[i])
				}
			}
			if p := priceOf(chosen); enough(released) && (!possible || p.compare(best) < 0) {
				best, possible = p, true
			}
		}
		require.Equal(t, possible, found, "seed %d", seed)
		if found {
			require.Equal(t, best, s.priceOf(got...), "seed %d", seed)
		}
	}
}

func randomClaims(r *rand.Rand) (claims []*clusterview.Claim, weights []int) {
	var pods []*clusterview.Pod
	for i := range 1 + r.IntN(6) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: fmt.Sprint(i)}}
		priority := int32(r.IntN(3))
		pod.Spec.Priority = &priority
		pods = append(pods, &clusterview.Pod{Pod: pod})
	}
	for range r.IntN(8) {
		claim := &clusterview.Claim{ResourceClaim: &resourceapi.ResourceClaim{}}
		for range r.IntN(3) {
			claim.Pods = append(claim.Pods, pods[r.IntN(len(pods))])
		}
		claims, weights = append(claims, claim), append(weights, 1+r.IntN(4))
	}
	return claims, weights
}

// TestLedger_RandomUses_AsTheAllocator: whether a pool has room, and how much, is the allocator's answer, even if claims hold more than
// there is.
func TestLedger_RandomUses_AsTheAllocator(t *testing.T) {
	t.Parallel()
	free, full := 0, 0
	for seed := range uint64(150) {
		r := &random{Rand: rand.New(rand.NewPCG(seed, 9)), world: newWorld(t)}
		r.node("gpu-a01", "h100-80", 1, func(i int, g *gpu.GPU) gpu.Modes {
			m := r.anyModes(i, g)
			m.MIG = g.MIG.ProfileNames()
			return m
		})
		pool := r.solver().Cluster.FindNode("gpu-a01").Pools
		for i := range r.IntN(5) {
			r.forge(i, pick(r, pool...))
		}
		s := r.solver()
		run := newRun(s, r.options())
		a := run.asked([]*resourceapi.ResourceClaim{claimOf("ml", "wanted", r.request())})
		for _, p := range s.Cluster.FindNode("gpu-a01").Pools {
			in, o := run.read(context.Background(), a.one, p.Node, p)
			if o != nil {
				continue
			}
			q := Question{Node: p.Node, Pools: []*clusterview.Pool{p}, Claims: a.claims}
			want := 0
			for ; want < 6; want++ {
				found, err := s.Allocate(context.Background(), q)
				require.NoError(t, err)
				if found == nil {
					break
				}
				q.More = append(q.More, found[0].Devices.Results...)
			}
			assert.Equal(t, want, in.ledger.free(in.able, run.demand(a.one), 6), "seed %d: %s", seed, a.one.describe(driver))
			if want == 0 {
				full++
			} else {
				free++
			}
		}
	}
	assert.Greater(t, free, 20)
	assert.Greater(t, full, 20)
}

// forge allocates a random device, without the allocator.
func (r *random) forge(i int, p *clusterview.Pool) {
	for _, slice := range p.Slices() {
		if len(slice.Spec.Devices) == 0 {
			continue
		}
		d := slice.Spec.Devices[r.IntN(len(slice.Spec.Devices))]
		claim := claimOf("web", fmt.Sprint("forged-", i), request(driver, 1))
		result := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: driver, Pool: p.Name, Device: d.Name}
		if shared(&d) {
			id := types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
			result.ShareID = &id
			result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
				"shares": resource.MustParse("1"), "memory": resource.MustParse("9Gi"),
			}
		}
		claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{result},
		}}
		r.store.PutClaim(claim)
		return
	}
}
