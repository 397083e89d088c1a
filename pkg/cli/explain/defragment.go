package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// Plan moves pods, so that a waiting pod gets a device. Nothing carries it out.
type Plan struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	UID       types.UID `json:"uid"`
	Target    Target    `json:"target"`
	// Moves are the pods to evict, in the order in which the allocator found other devices for them.
	Moves []Move `json:"moves"`
	// Tainted are the devices of the target's pool that overlap it. While the pods move, a DeviceTaintRule on each stops new claims from
	// getting them.
	Tainted []string `json:"taintedDevices"`
	// Notes are facts that can delay the plan.
	Notes []string `json:"notes,omitempty"`
}

// Target is the device that the waiting pod gets.
type Target struct {
	Node   string `json:"node"`
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Device string `json:"device"`
	// GPU is the name of the physical GPU, Profile the MIG profile.
	GPU     string `json:"gpu,omitempty"`
	Profile string `json:"profile,omitempty"`
	// Start and Size are the memory slices of a MIG device; Size is 0 for other devices.
	Start int `json:"start"`
	Size  int `json:"size"`
}

// Move is a pod that is evicted and created again.
type Move struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	UID       types.UID `json:"uid"`
	// Owner is its controller: "ReplicaSet/web".
	Owner string `json:"owner"`
	// Devices describes its devices: "1g.10gb at 2".
	Devices string `json:"devices"`
	// To is a node where its claims fit. The scheduler can choose another one.
	To string `json:"to"`
}

// NoPlan is why there is no plan.
type NoPlan struct {
	// Fits is set if no plan is needed.
	Fits bool
	// Sentence is the reason.
	Sentence string
}

func (n *NoPlan) Error() string { return n.Sentence }

// moveSetLimit limits the sets of pods that are tried.
const moveSetLimit = 2000

// defragmentation is the search for a plan.
type defragmentation struct {
	*run
	budgets Budgets
	// request is the claim that waits; one and reads are as in asked.
	request *resourceapi.ResourceClaim
	one     *wish
	reads   clusterview.Reads
	// reasons are why pods cannot move.
	reasons map[*clusterview.Pod]string
	// checks are the checks of nodes for pods that move, taken the resources of nodes that pods request.
	checks map[*clusterview.Pod]*nodeChecks
	taken  map[string]corev1.ResourceList
	// vacancies are nodes where claims fit now, by the specs of the claims; specs are the specs of a pod's claims.
	vacancies map[string]*vacancy
	specs     map[*clusterview.Pod]string
	keys      poolKeys
	// failed are why the first sets of pods were not a plan.
	failed []string
}

// Defragment returns the smallest plan that makes room for a device of a waiting pod. The error is *NoPlan if there is none. Budgets are the
// PodDisruptionBudgets of the cluster.
func Defragment(ctx context.Context, s *Solver, pod *clusterview.Pod, budgets Budgets) (*Plan, error) {
	pod = withRequests(pod)
	d := &defragmentation{
		run: newRun(s, Options{}), budgets: budgets, reasons: map[*clusterview.Pod]string{}, checks: map[*clusterview.Pod]*nodeChecks{},
		vacancies: map[string]*vacancy{}, specs: map[*clusterview.Pod]string{}, keys: poolKeys{},
	}
	d.pod = pod
	nodes, err := d.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.alreadyFits(ctx, nodes); err != nil {
		return nil, err
	}
	moveSets, err := d.moveSets(ctx, nodes)
	if err != nil {
		return nil, err
	}
	for _, c := range moveSets[:min(len(moveSets), moveSetLimit)] {
		plan, err := d.plan(ctx, c)
		if plan != nil || err != nil {
			return plan, err
		}
	}
	return nil, d.hopeless(ctx, nodes)
}

// name names the waiting pod in sentences.
func (d *defragmentation) name() string { return fmt.Sprintf("pod %s/%s", d.pod.Namespace, d.pod.Name) }

// start returns the nodes on which the pod could run, and selects the claim that waits. The error is why the pod needs no plan, or cannot have
// one.
func (d *defragmentation) start(ctx context.Context) (nodes []*clusterview.Node, err error) {
	switch state, _, err := started(d.pod); {
	case err != nil:
		return nil, &NoPlan{Fits: !ended(d.pod), Sentence: err.Error()}
	case state != "":
		return nil, &NoPlan{Fits: true, Sentence: d.name() + " " + state}
	}
	problem, claims := d.before(ctx, d.pod)
	if problem != "" {
		return nil, &NoPlan{Sentence: d.name() + ": " + problem}
	}
	x := newExtended(d.Cluster, d.pod)
	if claims.made {
		x.classes = nil
	}
	var waiting *asked
	for _, place := range d.places(d.pod, claims, x) {
		if len(place.asked.claims) == 0 {
			continue
		}
		waiting = place.asked
		if place.refusal == nil && len(place.node.Pools) > 0 {
			nodes = append(nodes, place.node)
		}
	}
	if waiting == nil {
		return nil, &NoPlan{Sentence: d.name() + " has no claim that waits for a device"}
	}
	if len(waiting.claims) > 1 || devicesOf(&waiting.claims[0].Spec.Devices) != 1 {
		return nil, &NoPlan{Sentence: d.name() + " waits for several devices; only a claim for one device can have a plan"}
	}
	d.request, d.one, d.reads = waiting.claims[0], waiting.one, waiting.reads
	return nodes, nil
}

// devicesOf returns how many devices a claim requests. Requests for all devices, or with admin access, count as several.
func devicesOf(of *resourceapi.DeviceClaim) (n int64) {
	const several = 2
	for i := range of.Requests {
		switch r := of.Requests[i].Exactly; {
		case r == nil:
			most := int64(0)
			for _, sub := range of.Requests[i].FirstAvailable {
				most = max(most, sub.Count, 1)
				if sub.AllocationMode == resourceapi.DeviceAllocationModeAll {
					most = several
				}
			}
			n += most
		case r.AllocationMode == resourceapi.DeviceAllocationModeAll, r.AdminAccess != nil && *r.AdminAccess:
			n += several
		default:
			n += max(r.Count, 1)
		}
	}
	return n
}

// allocate asks the allocator. An error that is not only about this node ends the search: the scheduler tries no other node either.
func (d *defragmentation) allocate(ctx context.Context, q Question) ([]resourceapi.AllocationResult, error) {
	found, err := d.Allocate(ctx, q)
	if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &NoPlan{Sentence: fmt.Sprintf("the scheduler's allocator cannot place %s: %v", d.name(), err)}
	}
	return found, nil
}

// alreadyFits returns an error if the pod fits now, or as soon as pods that end have released their devices.
func (d *defragmentation) alreadyFits(ctx context.Context, nodes []*clusterview.Node) error {
	v := &vacancy{d: d, claims: []*resourceapi.ResourceClaim{d.request}, one: d.one, reads: d.reads, known: map[string]bool{}}
	for _, node := range nodes {
		fits, err := v.fits(ctx, node)
		if err != nil {
			return err
		}
		if fits {
			return &NoPlan{Fits: true, Sentence: fmt.Sprintf("%s needs no plan: its claim fits on node %s now", d.name(), node.Name)}
		}
	}
	for _, node := range nodes {
		if !slices.ContainsFunc(node.Pools, func(p *clusterview.Pool) bool {
			return slices.ContainsFunc(p.Uses, func(u clusterview.Use) bool { return releasesSoon(u.Claim) })
		}) {
			continue
		}
		found, err := d.allocate(ctx, Question{Node: node, Claims: v.claims, Released: releasesSoon})
		if err != nil {
			return err
		}
		if found != nil {
			return &NoPlan{Fits: true, Sentence: fmt.Sprintf("%s needs no plan: its claim fits on node %s as soon as pods that end have released their devices",
				d.name(), node.Name)}
		}
	}
	return nil
}

// moveSet is a set of pods without which the claim may fit into a pool.
type moveSet struct {
	room *occupied
	pods []*clusterview.Pod
}

// moveSets returns sets of pods, the smallest first, of equal ones the least important first.
func (d *defragmentation) moveSets(ctx context.Context, nodes []*clusterview.Node) (all []moveSet, err error) {
	for _, node := range nodes {
		for _, p := range node.Pools {
			if len(p.Uses) == 0 || d.unusable(p) != "" {
				continue
			}
			room := occupy(p, d.Features, func(pod *clusterview.Pod) bool { return d.immovable(pod) == "" })
			if len(room.pods) == 0 {
				continue
			}
			found, err := d.allocate(ctx, d.question(p, room.pods))
			if err != nil {
				return nil, err
			}
			if found != nil {
				all = append(all, d.moveSetsIn(ctx, node, room)...)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b moveSet) int {
		return cmp.Or(cmp.Compare(len(a.pods), len(b.pods)), cmp.Compare(importance(a.pods), importance(b.pods)))
	})
	return all, nil
}

// moveSetsIn returns the smallest sets of pods for each device of a pool that the claim could get, each set once.
func (d *defragmentation) moveSetsIn(ctx context.Context, node *clusterview.Node, room *occupied) (all []moveSet) {
	devices, m := room.reachable(), demand{}
	if d.one != nil {
		if in, _ := d.read(ctx, d.one, node, room.pool); in != nil {
			devices, m = in.able, d.demand(d.one)
		}
	}
	known := map[string]bool{}
	for _, device := range devices {
		for _, pods := range room.fewest(device, m) {
			if key := podNames(pods); len(pods) > 0 && !known[key] {
				known[key] = true
				all = append(all, moveSet{room, pods})
			}
		}
	}
	return all
}

// importance is the sum of the priorities of pods.
func importance(pods []*clusterview.Pod) (sum int64) {
	for _, pod := range pods {
		sum += int64(podPriority(pod))
	}
	return sum
}

// question asks whether the claim fits into a pool without some pods, and without pods that end.
func (d *defragmentation) question(p *clusterview.Pool, without []*clusterview.Pod) Question {
	return Question{
		Node: p.Node, Pools: []*clusterview.Pool{p}, Claims: []*resourceapi.ResourceClaim{d.request}, Released: goneWith(without),
	}
}
