package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// lessMemory finds the most memory that a request for an amount of it gets.
func (r *run) lessMemory(ctx context.Context, places []place) string {
	if !r.Features.ConsumableCapacity {
		return ""
	}
	for _, w := range choices(places) {
		if w.request.Capacity == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(w.request.Capacity.Requests)) {
			requested := w.request.Capacity.Requests[name]
			if base := baseName(name); base != "memory" && base != "migMemory" {
				continue
			}
			amount := r.mostOf(ctx, w, name, places)
			if amount <= 0 || amount >= milli(&requested) {
				continue
			}
			text := amountText(amount, &requested)
			less := r.changed(w, func(request *resourceapi.ExactDeviceRequest) {
				request.Capacity.Requests[name] = resource.MustParse(text)
			})
			if _, confirmed := r.room(ctx, less, places); confirmed {
				return fmt.Sprintf("request %s %s instead of %s", text, baseName(name), requested.String())
			}
		}
	}
	return ""
}

// mostOf is the most of a capacity that a device has left for a request, in thousandths.
func (r *run) mostOf(ctx context.Context, w *wish, name resourceapi.QualifiedName, places []place) int64 {
	less := r.changed(w, func(request *resourceapi.ExactDeviceRequest) { delete(request.Capacity.Requests, name) })
	most := map[string]int64{}
	reads := r.reads(r.matcher, []*resourceapi.ResourceClaim{w.alone()})
	for i := range places {
		if places[i].refusal != nil {
			continue
		}
		for _, pool := range r.reachable(places[i].node) {
			key := r.key(pool, reads, places[i].node)
			if _, known := most[key]; !known {
				most[key] = r.mostIn(ctx, less, name, w, places[i].node, pool)
			}
		}
	}
	best := int64(0)
	for _, amount := range most {
		best = max(best, amount)
	}
	return best
}

// mostIn is the most for one pool. Without is the request without the capacity.
func (r *run) mostIn(
	ctx context.Context, without *wish, name resourceapi.QualifiedName, w *wish, node *clusterview.Node, pool *clusterview.Pool,
) int64 {
	// A request that does not name the capacity may take all of it, so that only expressions count here.
	places, l := r.matchingIn(ctx, without, node, pool)
	best := int64(0)
	requested := w.request.Capacity.Requests[name]
	for _, place := range places {
		e := &l.devices[place]
		c, found := e.Capacity[name]
		if !found || len(r.untolerated(e.Device, w)) > 0 {
			continue
		}
		amount := milli(&c.Value)
		for _, u := range e.uses {
			amount -= u.consumed[name]
		}
		amount = roundedDown(amount, c.RequestPolicy)
		if amount <= best || amount >= milli(&requested) {
			continue
		}
		trial := r.demand(w)
		trial.requests = maps.Clone(trial.requests)
		trial.requests[name] = *resource.NewMilliQuantity(amount, resource.BinarySI)
		if _, _, lacks := trial.lacking(e.Device); !lacks && l.usable(place, trial, make([]bool, len(l.claims))) {
			best = amount
		}
	}
	return best
}

// matchingIn lists the devices of a pool that expressions match.
func (r *run) matchingIn(ctx context.Context, w *wish, node *clusterview.Node, pool *clusterview.Pool) ([]int, *ledger) {
	if r.unusable(pool) != "" {
		return nil, nil
	}
	l := newLedger(pool, node, r.Features)
	reachable := l.reachable()
	matching, err := w.selected(ctx, r.matcher, l.devicesOf(reachable))
	if err != nil {
		return nil, l
	}
	for i, at := range matching {
		matching[i] = reachable[at]
	}
	return matching, l
}

// roundedDown is the largest amount that a policy allows and that is not larger; 0 for none.
func roundedDown(amount int64, policy *resourceapi.CapacityRequestPolicy) int64 {
	if policy == nil {
		return amount
	}
	if r := policy.ValidRange; r != nil {
		if r.Max != nil {
			amount = min(amount, milli(r.Max))
		}
		if r.Min == nil {
			return amount
		}
		least := milli(r.Min)
		if amount < least {
			return 0
		}
		if r.Step != nil {
			step := max(milli(r.Step), 1)
			return least + (amount-least)/step*step
		}
		return amount
	}
	best := int64(0)
	for i := range policy.ValidValues {
		if v := milli(&policy.ValidValues[i]); v <= amount {
			best = max(best, v)
		}
	}
	if len(policy.ValidValues) == 0 {
		return amount
	}
	return best
}

// profileEquals matches the comparison of a MIG profile in an expression.
var profileEquals = regexp.MustCompile(`\.profile\s*==\s*["']([^"']+)["']`)

// profile is the MIG profile that a request names, in an expression or as a capacity; "" for none.
func (w *wish) profile(profiles map[string]mig) string {
	for _, e := range w.expressions {
		if match := profileEquals.FindStringSubmatch(e.text); match != nil {
			return match[1]
		}
	}
	if w.request.Capacity != nil {
		for name := range w.request.Capacity.Requests {
			for profile, m := range profiles {
				if m.capacity == name {
					return profile
				}
			}
		}
	}
	return ""
}

// mig is a MIG profile that devices have.
type mig struct {
	memory, multiprocessors int64
	capacity                resourceapi.QualifiedName
}

// profiles lists the MIG profiles of a driver.
func (r *run) profiles(driver string, places []place) map[string]mig {
	all := map[string]mig{}
	seen := map[string]bool{}
	for i := range places {
		if places[i].refusal != nil {
			continue
		}
		for _, pool := range r.reachable(places[i].node) {
			if key := pool.Key(clusterview.Reads{}); pool.Driver != driver || seen[key] {
				continue
			} else {
				seen[key] = true
			}
			for _, slice := range pool.Slices() {
				for j := range slice.Spec.Devices {
					d := device{&slice.Spec.Devices[j], driver}
					if stringAttribute(d, "type") == "mig" {
						all[stringAttribute(d, "profile")] = migOf(d)
					}
				}
			}
		}
	}
	return all
}

func migOf(d device) mig {
	var m mig
	if c, found := capacityOf(d, resourceapi.QualifiedName(d.driver+"/memory")); found {
		m.memory = milli(&c.Value)
	}
	if c, found := capacityOf(d, resourceapi.QualifiedName(d.driver+"/multiprocessors")); found {
		m.multiprocessors = milli(&c.Value)
	}
	for name := range d.Capacity {
		if isProfileCapacity(baseName(name)) {
			m.capacity = name
		}
	}
	return m
}

// smallerProfile finds the largest smaller MIG profile with a free device.
func (r *run) smallerProfile(ctx context.Context, places []place) string {
	ws := choices(places)
	for i, w := range slices.Backward(ws) {
		// A class for capacities names no driver.
		profiles := r.profiles(cmp.Or(w.driver(), r.options.Driver), places)
		now := w.profile(profiles)
		if now == "" {
			continue
		}
		var smaller []string
		for profile, m := range profiles {
			if m.memory < profiles[now].memory {
				smaller = append(smaller, profile)
			}
		}
		slices.SortFunc(smaller, func(a, b string) int {
			p, q := profiles[a], profiles[b]
			return cmp.Or(cmp.Compare(q.memory, p.memory), cmp.Compare(q.multiprocessors, p.multiprocessors), cmp.Compare(len(a), len(b)),
				cmp.Compare(a, b))
		})
		for _, profile := range smaller {
			other := r.withProfile(w, now, profile, profiles)
			if other == nil {
				continue
			}
			free, confirmed := r.room(ctx, other, places)
			if !confirmed {
				continue
			}
			verb := "request " + r.profileText(w, other, profile)
			if len(ws) > 1 {
				verb = "add a subrequest for " + profile
			}
			return fmt.Sprintf("%s: %d free now", verb, free)
		}
		if i == 0 {
			break
		}
	}
	return ""
}

// profileText names a profile, or the extended resource that stands for it.
func (r *run) profileText(w, other *wish, profile string) string {
	if !isMade(w.claim) || other.class == nil {
		return profile
	}
	if name := other.class.Spec.ExtendedResourceName; name != nil {
		return *name
	}
	return resourceapi.ResourceDeviceClassPrefix + other.class.Name
}

// withProfile returns a request for another MIG profile; nil if the profile cannot be exchanged.
func (r *run) withProfile(w *wish, from, to string, profiles map[string]mig) *wish {
	exchange := func(text string) string {
		return profileEquals.ReplaceAllStringFunc(text, func(match string) string {
			return strings.ReplaceAll(strings.ReplaceAll(match, `"`+from+`"`, `"`+to+`"`), `'`+from+`'`, `'`+to+`'`)
		})
	}
	done := false
	other := r.changed(w, func(request *resourceapi.ExactDeviceRequest) {
		for i := range request.Selectors {
			if c := request.Selectors[i].CEL; c != nil {
				text := exchange(c.Expression)
				done = done || text != c.Expression
				c.Expression = text
			}
		}
		if request.Capacity != nil {
			if amount, found := request.Capacity.Requests[profiles[from].capacity]; found && profiles[to].capacity != "" {
				delete(request.Capacity.Requests, profiles[from].capacity)
				request.Capacity.Requests[profiles[to].capacity] = amount
				done = true
			}
		}
		if class := r.classWith(w.class, exchange); !done && class != "" {
			request.DeviceClassName = class
			done = true
		}
	})
	if !done {
		return nil
	}
	return other
}

// classWith finds the class whose expressions are equal to another's after an exchange; "" for none.
func (r *run) classWith(class *resourceapi.DeviceClass, exchange func(string) string) string {
	wanted, now := exchange(expressionText(class)), expressionText(class)
	if wanted == now {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(r.Cluster.Classes)) {
		if expressionText(r.Cluster.Classes[name]) == wanted {
			return name
		}
	}
	return ""
}

func expressionText(class *resourceapi.DeviceClass) string {
	var texts []string
	for _, s := range class.Spec.Selectors {
		if s.CEL != nil {
			texts = append(texts, s.CEL.Expression)
		}
	}
	return strings.Join(texts, "\n")
}
