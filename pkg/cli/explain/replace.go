package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// searchLimit limits the calls of the allocator in the search for the places of one set of pods.
const searchLimit = 5000

// plan returns the plan that moves the pods of a moveSet; nil if it does not help.
func (d *defragmentation) plan(ctx context.Context, c moveSet) (*Plan, error) {
	if why := d.budgets.forbid(c.pods); why != "" {
		d.fail("%s cannot move together: %s", podNames(c.pods), why)
		return nil, nil
	}
	found, err := d.allocate(ctx, d.question(c.room.pool, c.pods))
	if err != nil || found == nil {
		return nil, err
	}
	result := &found[0].Devices.Results[0]
	place := c.room.index(result.Device)
	r := &replacement{defragmentation: d, moveSet: c, device: result.Device, taken: found[0].Devices.Results}
	plan := &Plan{
		Namespace: d.pod.Namespace, Pod: d.pod.Name, UID: d.pod.UID, Target: targetOf(c.room.pool, c.room.devices[place].device),
		Tainted: c.room.overlapping(place, c.pods),
	}
	r.tainted = map[string]bool{}
	for _, name := range plan.Tainted {
		r.tainted[name] = true
	}
	for _, pod := range c.pods {
		takes, err := r.takesTarget(ctx, pod)
		if err != nil {
			return nil, err
		}
		if takes {
			d.fail("the pod that replaces %s/%s could get the same device", pod.Namespace, pod.Name)
			return nil, nil
		}
	}
	places, err := r.findPlaces(ctx)
	if err != nil || places == nil {
		return nil, err
	}
	for _, at := range places {
		plan.Moves = append(plan.Moves, moveOf(at.pod, c.room.pool.Node, at.node))
	}
	plan.Notes, err = r.notes(ctx)
	return plan, err
}

// fail notes why a set of pods is not a plan.
func (d *defragmentation) fail(format string, values ...any) {
	if text := fmt.Sprintf(format, values...); !slices.Contains(d.failed, text) {
		d.failed = append(d.failed, text)
	}
}

func podNames(pods []*clusterview.Pod) string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	slices.Sort(names)
	if len(names) == 1 {
		return "pod " + names[0]
	}
	return "pods " + strings.Join(names, ", ")
}

func targetOf(p *clusterview.Pool, d device) Target {
	t := Target{Node: p.Node.Name, Driver: p.Driver, Pool: p.Name, Device: d.Name, GPU: gpuName(d.Name)}
	if profile := stringAttribute(d, "profile"); profile != "none" {
		t.Profile = profile
		t.Start, t.Size = memorySlices(d.Device)
	}
	return t
}

func moveOf(pod *clusterview.Pod, from, to *clusterview.Node) Move {
	m := Move{Namespace: pod.Namespace, Pod: pod.Name, UID: pod.UID, Owner: ownerOf(pod), To: to.Name}
	var devices []string
	for _, p := range from.Pools {
		for _, use := range p.Uses {
			if d, found := findDevice(p, use.Result.Device); found && slices.Contains(pod.Claims, use.Claim) {
				devices = append(devices, useText(d, use.Result))
			}
		}
	}
	m.Devices = strings.Join(devices, ", ")
	return m
}

// replacement searches for places for the pods that are created in place of evicted ones.
type replacement struct {
	*defragmentation
	moveSet
	// device is the device for the waiting pod, taken its allocation.
	device string
	taken  []resourceapi.DeviceRequestAllocationResult
	// tainted are the devices of the pool with a rule.
	tainted map[string]bool
	calls   int
}

// rules reports which devices have rules.
func (r *replacement) rules(p *clusterview.Pool, device string) bool {
	return p == r.room.pool && r.tainted[device]
}

// takesTarget reports whether a claim of a pod could be allocated the device for the waiting pod in spite of the rules.
func (r *replacement) takesTarget(ctx context.Context, pod *clusterview.Pod) (bool, error) {
	for _, claim := range pod.Claims {
		for i := range claim.Spec.Devices.Requests {
			found, err := r.allocate(ctx, Question{
				Node: r.room.pool.Node, Pools: []*clusterview.Pool{r.room.pool}, Claims: []*resourceapi.ResourceClaim{onlyRequest(claim.ResourceClaim, i)},
				Released: goneWith(r.pods),
				Tainted:  func(_ *clusterview.Pool, device string) bool { return device != r.device },
			})
			if err != nil {
				return false, err
			}
			if found != nil {
				return true, nil
			}
		}
	}
	return false, nil
}

// onlyRequest returns a claim for one device with only one of the requests of a claim.
func onlyRequest(claim *resourceapi.ResourceClaim, request int) *resourceapi.ResourceClaim {
	only := again(claim)
	only.Spec.Devices.Constraints = nil
	only.Spec.Devices.Requests = only.Spec.Devices.Requests[request : request+1]
	r := &only.Spec.Devices.Requests[0]
	if r.Exactly != nil {
		r.Exactly.AllocationMode, r.Exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1
	}
	for i := range r.FirstAvailable {
		r.FirstAvailable[i].AllocationMode, r.FirstAvailable[i].Count = resourceapi.DeviceAllocationModeExactCount, 1
	}
	return only
}

// again returns the claim that is created in place of a claim.
func again(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID + "-again"},
		Spec:       *claim.Spec.DeepCopy(),
	}
}

// placed is a node for a pod.
type placed struct {
	pod  *clusterview.Pod
	node *clusterview.Node
}

// findPlaces returns a place for each pod, in the order in which they were found; nil if there is none for all of them.
func (r *replacement) findPlaces(ctx context.Context) (places []placed, err error) {
	for _, pod := range r.pods {
		places, err := r.placeAll(ctx, []*clusterview.Pod{pod}, r.taken)
		if err != nil {
			return nil, err
		}
		if places == nil {
			r.fail("pod %s/%s cannot move: no other device is free for it", pod.Namespace, pod.Name)
			return nil, nil
		}
		if len(r.pods) == 1 {
			return places, nil
		}
	}
	for _, order := range permutations(r.pods) {
		if places, err = r.placeAll(ctx, order, r.taken); places != nil || err != nil {
			return places, err
		}
	}
	r.fail("%s cannot move together: not enough other devices are free for them", podNames(r.pods))
	return nil, nil
}

// placeAll finds a place for the first pod, then for the others; it goes back if one of them has none.
func (r *replacement) placeAll(ctx context.Context, pods []*clusterview.Pod, more []resourceapi.DeviceRequestAllocationResult) ([]placed, error) {
	if len(pods) == 0 {
		return []placed{}, nil
	}
	v := r.vacancyFor(pods[0])
	// Claims that do not fit on a node now do not fit later either, except on the node from which pods move.
	from := r.room.pool.Node
	near := true
	if v.one != nil && len(r.Cluster.Shared) == 0 { // the other pools of that node have not changed
		fits, err := v.fits(ctx, from)
		if err != nil {
			return nil, err
		}
		found, err := r.allocate(ctx, r.again(v, []*clusterview.Pool{r.room.pool}, more))
		if err != nil {
			return nil, err
		}
		near = fits || found != nil
	}
	if near {
		if places, err := r.placeOn(ctx, from, v, pods, more); places != nil || err != nil {
			return places, err
		}
	}
	for node := range v.nodes(ctx) {
		if node == from {
			continue
		}
		if places, err := r.placeOn(ctx, node, v, pods, more); places != nil || err != nil {
			return places, err
		}
	}
	return nil, v.err
}

// again asks whether claims fit into the pools of the node from which pods move, beside the waiting pod; nil for all pools.
func (r *replacement) again(v *vacancy, pools []*clusterview.Pool, more []resourceapi.DeviceRequestAllocationResult) Question {
	return Question{Node: r.room.pool.Node, Pools: pools, Claims: v.claims, Released: goneWith(r.pods), More: more, Tainted: r.rules}
}

// placeOn finds a place for the first pod on a node, then for the others anywhere; nil if there is none.
func (r *replacement) placeOn(
	ctx context.Context, node *clusterview.Node, v *vacancy, pods []*clusterview.Pod, more []resourceapi.DeviceRequestAllocationResult,
) ([]placed, error) {
	if r.calls >= searchLimit || !r.accepts(pods[0], node) {
		return nil, nil
	}
	r.calls++
	q := r.again(v, nil, more)
	q.Node = node
	found, err := r.allocate(ctx, q)
	if err != nil || found == nil {
		return nil, err
	}
	results := slices.Clip(more)
	for i := range found {
		results = append(results, found[i].Devices.Results...)
	}
	rest, err := r.placeAll(ctx, pods[1:], results)
	if rest == nil || err != nil {
		return nil, err
	}
	return append([]placed{{pods[0], node}}, rest...), nil
}

// permutations returns the orders of up to 4 pods, and otherwise only the given one.
func permutations[T any](of []T) [][]T {
	const most = 4
	if len(of) > most || len(of) < 2 {
		return [][]T{of}
	}
	var all [][]T
	for i := range of {
		rest := slices.Delete(slices.Clone(of), i, i+1)
		for _, p := range permutations(rest) {
			all = append(all, append([]T{of[i]}, p...))
		}
	}
	return all
}

// notes lists what can delay the plan: pods that end, and other waiting pods that could get the device.
func (r *replacement) notes(ctx context.Context) (notes []string, err error) {
	ending, waiting := map[string]bool{}, map[string]bool{}
	for _, use := range r.room.pool.Uses {
		if releasesSoon(use.Claim) {
			ending[use.Claim.Namespace+"/"+use.Claim.Pods[0].Name] = true
		}
	}
	for _, pod := range r.Cluster.Pods {
		if len(waiting) == 1 {
			break
		}
		if pod.UID == r.pod.UID || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || !r.accepts(pod, r.room.pool.Node) {
			continue
		}
		if slices.ContainsFunc(pod.Claims, func(c *clusterview.Claim) bool { return c.Status.Allocation != nil }) {
			continue
		}
		takes, err := r.takesTarget(ctx, pod)
		if err != nil {
			return nil, err
		}
		if takes {
			waiting[pod.Namespace+"/"+pod.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ending)) {
		notes = append(notes, fmt.Sprintf("pod %s ends already: the device is free when it has", name))
	}
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		notes = append(notes, fmt.Sprintf("pod %s waits too, and could get the device first", name))
	}
	return notes, nil
}
