package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// blocked is a device that claims hold, with the cheapest of them to release.
type blocked struct {
	place  *place
	pooled *pooled
	device int
	claims []*clusterview.Claim
	price  price
	wish   *wish
}

// held reports whether claims are in the way on a node.
func (p *place) held() bool {
	return p.refusal == nil && p.outcome != nil && p.outcome.fatal == nil && p.outcome.inUse
}

// ones are the requests for one device of which one would do; nil if the claims need several devices.
func (a *asked) ones() (ones []*wish) {
	if len(a.claims) != 1 || len(a.wishes) != 1 || len(a.claims[0].Spec.Devices.Constraints) > 0 {
		return nil
	}
	for _, w := range a.wishes[0] {
		if w.request.Count == 1 && !w.all() && !w.admin() {
			ones = append(ones, w)
		}
	}
	return ones
}

// alikeness are devices with equally many holders.
type alikeness struct{ pods, claims int }

// findNearest finds the device with the fewest pods in the way, and confirms it with the allocator.
func (r *run) findNearest(ctx context.Context, e *Explanation, places []place) error {
	var best *blocked
	alike := map[alikeness]int{}
	for i := range places {
		p := &places[i]
		if !p.held() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, w := range p.asked.ones() {
			best = r.nearestInPools(ctx, p, w, best, alike)
		}
	}
	if best == nil {
		return r.nearestTogether(ctx, e, places)
	}
	// Until now, the names may be from an equal pool.
	if best.pooled, _ = r.read(ctx, best.wish, best.place.node, best.pooled.pool); best.pooled == nil {
		return ctx.Err()
	}
	q := Question{
		Node: best.place.node, Pools: []*clusterview.Pool{best.pooled.pool}, Claims: []*resourceapi.ResourceClaim{best.wish.alone()},
		Released: among(best.claims),
	}
	if fits, err := r.fits(ctx, q); err != nil || !fits {
		return ctx.Err()
	}
	e.Nearest = r.describeNearest(best)
	e.Nearest.Alike = alike[alikeness{best.price.pods, best.price.claims}]
	return nil
}

// nearestInPools finds a cheaper device in the pools of a node in which devices are in use.
func (r *run) nearestInPools(ctx context.Context, p *place, w *wish, best *blocked, alike map[alikeness]int) *blocked {
	for _, pool := range r.reachable(p.node) {
		if o := r.pools[w][r.key(pool, p.asked.reads, p.node)]; o == nil || !o.inUse {
			continue
		}
		reading := r.known(ctx, w, p.asked.reads, p.node, pool)
		if reading.outcome != nil {
			continue
		}
		in := reading.of(pool, p.node, r.Features)
		_, held := r.divide(w, in)
		r.nearest(w, in, held, func(device int, claims []*clusterview.Claim, price price) {
			alike[alikeness{price.pods, price.claims}]++
			if best == nil || price.compare(best.price) < 0 {
				best = &blocked{place: p, pooled: in, device: device, claims: claims, price: price, wish: w}
			}
		})
	}
	return best
}

func (r *run) describeNearest(b *blocked) *Nearest {
	d := b.pooled.ledger.devices[b.device].device
	n := &Nearest{Node: b.place.node.Name, Device: d.Name, Alike: 1}
	if d.driver == r.options.Driver {
		n.GPU = gpuName(d.Name)
	}
	if stringAttribute(d, "type") == "mig" {
		n.Start, n.Size = memorySlices(d.Device)
	}
	for _, claim := range b.claims {
		n.Holders = append(n.Holders, holderOf(claim, []*clusterview.Pool{b.pooled.pool}))
	}
	sortHolders(n.Holders)
	return n
}

func sortHolders(holders []Holder) {
	slices.SortFunc(holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim))
	})
}

// holderOf describes a claim by its devices in some pools.
func holderOf(claim *clusterview.Claim, pools []*clusterview.Pool) Holder {
	h := Holder{Namespace: claim.Namespace, Claim: claim.Name, Created: claim.CreationTimestamp.Unix(), Terminating: len(claim.Pods) > 0}
	for i, pod := range claim.Pods {
		h.Pods = append(h.Pods, pod.Name)
		h.Terminating = h.Terminating && pod.DeletionTimestamp != nil
		if i == 0 {
			h.Owner = ownerOf(pod)
		}
		if priority := podPriority(pod); i == 0 || priority > h.Priority {
			h.Priority = priority
		}
	}
	if claim.CreationTimestamp.IsZero() {
		h.Created = 0
	}
	var texts []string
	for _, p := range pools {
		for _, use := range p.Uses {
			if use.Claim != claim {
				continue
			}
			if d, found := findDevice(p, use.Result.Device); found {
				texts = append(texts, useText(d, use.Result))
			} else {
				texts = append(texts, use.Result.Device)
			}
		}
	}
	h.Devices = list(texts, shown)
	return h
}

// ownerOf is the controller of a pod; of a pod of a Deployment the Deployment.
func ownerOf(pod *clusterview.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return ""
	}
	if hash := pod.Labels["pod-template-hash"]; owner.Kind == "ReplicaSet" && hash != "" {
		if name, found := strings.CutSuffix(owner.Name, "-"+hash); found {
			return "Deployment/" + name
		}
	}
	return owner.Kind + "/" + owner.Name
}

func findDevice(p *clusterview.Pool, name string) (device, bool) {
	for _, slice := range p.Slices() {
		for i := range slice.Spec.Devices {
			if slice.Spec.Devices[i].Name == name {
				return device{&slice.Spec.Devices[i], p.Driver}, true
			}
		}
	}
	return device{}, false
}

// useText describes an allocated device: "1g.10gb at 2", "whole GPU", "mps 20Gi".
func useText(d device, r *resourceapi.DeviceRequestAllocationResult) string {
	switch kind := stringAttribute(d, "type"); kind {
	case "gpu":
		return "whole GPU"
	case "mig":
		if start, size := memorySlices(d.Device); size > 0 {
			return fmt.Sprintf("%s at %d", stringAttribute(d, "profile"), start)
		}
		return stringAttribute(d, "profile")
	case "mps", "timeslice":
		if memory, found := r.ConsumedCapacity["memory"]; found && !memory.IsZero() {
			return kind + " " + memory.String()
		}
		return kind + " share"
	default:
		return d.Name
	}
}

// hiddenHolders reports whether the scheduler refuses the pod although all devices in sight leave room: the user cannot list all claims.
func (r *run) hiddenHolders() bool {
	if r.Cluster.Scope.Namespace == "" || r.pod == nil {
		return false
	}
	text := r.options.Facts.Scheduler
	for _, c := range r.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			text += c.Message
		}
	}
	return strings.Contains(text, "cannot allocate all claims")
}

// hiddenDetail is the detail if only claims that were not read can be in the way.
const hiddenDetail = "claims that you cannot list are in the way"

// hide explains nodes with room by claims that were not read.
func (r *run) hide(ctx context.Context, e *Explanation, places []place) {
	e.Fits = false
	// The note says that their devices count as free; here they count as in use.
	e.Notes = slices.DeleteFunc(e.Notes, func(note string) bool { return note == hiddenNote })
	for i := range places {
		p := &places[i]
		if p.outcome.cause != Fits {
			continue
		}
		p.outcome = &outcome{cause: InUse, detail: hiddenDetail}
		if e.Nearest != nil {
			continue
		}
		found, err := r.Allocate(ctx, Question{Node: p.node, Pools: r.reachable(p.node), Claims: p.asked.claims})
		if err == nil {
			e.Nearest = r.allocatedNearest(p, found, []Holder{{Hidden: true}})
		}
	}
}

// allocatedNearest describes an allocation: its device, or of several the one that is in use. Holders of several devices are on several GPUs,
// of which none is named. It returns nil for an allocation without devices.
func (r *run) allocatedNearest(p *place, found []resourceapi.AllocationResult, holders []Holder) *Nearest {
	var all, used []*Nearest
	for _, allocation := range found {
		for i := range allocation.Devices.Results {
			n, inUse := r.nearestOf(p, &allocation.Devices.Results[i])
			if n == nil {
				continue
			}
			n.Holders = holders
			all = append(all, n)
			if inUse {
				used = append(used, n)
			}
		}
	}
	switch {
	case len(all) == 0:
		return nil
	case len(all) == 1:
		return all[0]
	case len(used) == 1 && len(holders) == 1:
		return used[0]
	default:
		return &Nearest{Node: p.node.Name, Alike: 1, Holders: holders}
	}
}

// nearestOf describes an allocated device, and reports whether it is in use; nil if it is not found.
func (r *run) nearestOf(p *place, result *resourceapi.DeviceRequestAllocationResult) (n *Nearest, inUse bool) {
	for _, pool := range r.reachable(p.node) {
		d, is := findDevice(pool, result.Device)
		if !is || pool.Driver != result.Driver || pool.Name != result.Pool {
			continue
		}
		n = &Nearest{Node: p.node.Name, Device: result.Device, Alike: 1}
		if d.driver == r.options.Driver {
			n.GPU = gpuName(d.Name)
		}
		if stringAttribute(d, "type") == "mig" {
			n.Start, n.Size = memorySlices(d.Device)
		}
		return n, slices.ContainsFunc(pool.Uses, func(u clusterview.Use) bool { return u.Result.Device == result.Device })
	}
	return nil, false
}
