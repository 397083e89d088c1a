package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// place is a node with the claims to allocate on it.
type place struct {
	node *clusterview.Node
	// refusal is why the node, apart from its free devices, refuses the pod; nil if it does not.
	refusal *outcome
	asked   *asked
	outcome *outcome
}

// places lists the nodes. Nodes with a device plugin need no claim for its resources.
func (r *run) places(pod *clusterview.Pod, claims podClaims, x *extended) []place {
	byDRA := map[corev1.ResourceName]bool{}
	for name := range x.classes {
		byDRA[name] = true
	}
	checks := newNodeChecks(r.Cluster, pod, byDRA)
	variants := map[string]*asked{}
	var places []place
	for _, node := range r.Cluster.Nodes {
		p := place{node: node, refusal: checks.refusal(node)}
		if p.refusal == nil {
			p.refusal = elsewhere(claims.allocated, node)
		}
		names := x.names(node)
		key := fmt.Sprint(names)
		if variants[key] == nil {
			pending := slices.Clone(claims.pending)
			if claim := x.claim(names); claim != nil {
				pending = append(pending, claim)
			}
			variants[key] = r.asked(pending)
		}
		p.asked = variants[key]
		places = append(places, p)
	}
	return places
}

// elsewhere refuses nodes on which allocated claims are not available.
func elsewhere(claims []*clusterview.Claim, node *clusterview.Node) *outcome {
	for _, claim := range claims {
		selector := claim.Status.Allocation.NodeSelector
		if selector == nil {
			continue
		}
		parsed, err := nodeaffinity.NewNodeSelector(selector)
		if err == nil && !parsed.Match(object(node)) {
			return &outcome{cause: NodeAffinity, detail: "claim " + claim.Name + " is allocated on " + where(selector)}
		}
	}
	return nil
}

// where names the node of a selector.
func where(selector *corev1.NodeSelector) string {
	for _, term := range selector.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == "metadata.name" && len(field.Values) == 1 {
				return "node " + field.Values[0]
			}
		}
	}
	return "other nodes"
}

// explain fills in the explanation.
func (r *run) explain(ctx context.Context, e *Explanation, places []place) error {
	e.Requests = r.requestLines(places)
	if !r.Features.ConsumableCapacity && requestsCapacity(places) {
		e.Notes = append(e.Notes, "The scheduler ignores the capacities that are requested: its feature gate "+consumableCapacity+" is off")
	}
	if problem := r.classMissing(places); problem != nil {
		for i := range places {
			places[i].outcome = problem
		}
		e.Groups = r.groups(places)
		e.Sentence = r.sentence(e, places)
		return nil
	}
	limited, cancel := limitedBy(ctx, r.options.Total)
	defer cancel()
	if err := r.search(limited, e, places); err != nil {
		// Only the caller's end is an error: without time for more, the result so far counts.
		if ctx.Err() != nil {
			return ctx.Err()
		}
		e.Notes = append(e.Notes, "The search for holders and changes ended before all were tried: it takes too long")
	}
	e.Sentence = r.sentence(e, places)
	return nil
}

// search fills in the nodes, the nearest device and the changes. It returns an error if the context ends before.
func (r *run) search(ctx context.Context, e *Explanation, places []place) error {
	r.askNodes(ctx, places)
	for _, p := range places {
		e.Fits = e.Fits || p.outcome.cause == Fits
	}
	hidden := e.Fits && r.hiddenHolders()
	if hidden {
		r.hide(ctx, e, places)
	}
	e.Groups = r.groups(places)
	if !e.Fits && e.Nearest == nil {
		if err := r.findNearest(ctx, e, places); err != nil {
			return err
		}
	}
	if e.Fits || hidden {
		// Other devices may be held by hidden claims too.
		return ctx.Err()
	}
	return r.change(ctx, e, places)
}

// askNodes finds the outcome of each node. An error that stops the scheduler is the outcome of all nodes that it would try. After the end of
// the context, the other nodes are not searched.
func (r *run) askNodes(ctx context.Context, places []place) {
	var failed *outcome
	for i := range places {
		p := &places[i]
		switch {
		case len(r.reachable(p.node)) == 0 && len(p.asked.claims) > 0:
			p.outcome = &outcome{cause: NoDevices}
		case p.refusal != nil:
			p.outcome = p.refusal
		case len(p.asked.claims) == 0:
			p.outcome = &outcome{cause: Fits}
		case ctx.Err() != nil:
			p.outcome = &outcome{cause: SearchTooLong}
		default:
			p.outcome = r.onNode(ctx, p.asked, p.node)
		}
		if p.outcome.fatal != nil && failed == nil {
			failed = &outcome{cause: p.outcome.cause, fatal: p.outcome.fatal, detail: r.failureDetail(ctx, p.asked, p.node, p.outcome)}
		}
	}
	if failed == nil {
		return
	}
	for i := range places {
		if places[i].refusal == nil {
			places[i].outcome = failed
		}
	}
}

// classMissing explains a class that does not exist, because of which the scheduler tries no node.
func (r *run) classMissing(places []place) *outcome {
	for _, p := range places {
		for _, alternatives := range p.asked.wishes {
			for _, w := range alternatives {
				if w.class == nil {
					name := w.request.DeviceClassName
					similar := didYouMean(name, slices.Collect(maps.Keys(r.Cluster.Classes)))
					return &outcome{cause: ClassMissing, detail: "DeviceClass " + name + " does not exist" + similar}
				}
			}
		}
	}
	return nil
}

// groups groups nodes by cause and detail: nodes that fit first, then the larger groups, nodes without devices last.
func (r *run) groups(places []place) []Group {
	type key struct {
		cause  Cause
		detail string
	}
	byKey := map[key]*Group{}
	for i := range places {
		p := &places[i]
		k := key{p.outcome.cause, r.detailOf(p.outcome, p.asked.one)}
		if byKey[k] == nil {
			byKey[k] = &Group{Cause: k.cause, Detail: k.detail}
		}
		byKey[k].Nodes = append(byKey[k].Nodes, p.node.Name)
	}
	class := func(c Cause) int {
		switch c {
		case Fits:
			return 0
		case NoDevices:
			return 2
		default:
			return 1
		}
	}
	groups := make([]Group, 0, len(byKey))
	for _, g := range byKey {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(class(a.Cause), class(b.Cause)), cmp.Compare(len(b.Nodes), len(a.Nodes)),
			cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Detail, b.Detail))
	})
	return groups
}

// requestLines describe the requests.
func (r *run) requestLines(places []place) []string {
	var a *asked
	for i := range places {
		if a == nil || len(places[i].asked.wishes) > len(a.wishes) {
			a = places[i].asked
		}
	}
	if a == nil {
		return nil
	}
	var lines []string
	for _, alternatives := range a.wishes {
		var texts []string
		for _, w := range alternatives {
			texts = append(texts, w.describe(cmp.Or(w.driver(), r.options.Driver)))
		}
		first := alternatives[0]
		name, _, _ := strings.Cut(first.name, "/")
		switch {
		case isMade(first.claim) && r.labels[name] != "":
			name = r.labels[name]
		case len(a.claims) > 1:
			name = first.claim.Name + "/" + name
		}
		lines = append(lines, name+": "+strings.Join(texts, ", else "))
	}
	return lines
}

// requestsCapacity reports whether a request is for a capacity.
func requestsCapacity(places []place) bool {
	for i := range places {
		for _, alternatives := range places[i].asked.wishes {
			if slices.ContainsFunc(alternatives, func(w *wish) bool { return w.request.Capacity != nil }) {
				return true
			}
		}
	}
	return false
}

// describe is "2 × mig.gpu.prism.dev with 20Gi memory".
func (w *wish) describe(driver string) string {
	text := fmt.Sprintf("%d × %s", w.request.Count, w.request.DeviceClassName)
	if w.all() {
		text = "all " + w.request.DeviceClassName
	}
	if w.request.Capacity != nil {
		var amounts []string
		for _, name := range slices.Sorted(maps.Keys(w.request.Capacity.Requests)) {
			amount := w.request.Capacity.Requests[name]
			amounts = append(amounts, amount.String()+" "+baseName(name))
		}
		text += " with " + strings.Join(amounts, ", ")
	}
	var conditions []string
	for _, e := range w.expressions {
		if strings.HasPrefix(e.of, "claim ") {
			conditions = append(conditions, "where "+e.short(driver))
		}
	}
	if len(conditions) > 0 {
		text += " " + listWith(conditions, " ", shown)
	}
	if w.admin() {
		text += " for admin access"
	}
	return text
}

// driver is the driver whose devices the class selects; "" if its expressions do not say it.
func (w *wish) driver() string {
	for _, e := range w.expressions {
		for _, p := range e.parts {
			if _, after, found := strings.Cut(p.text, `device.driver == "`); found {
				name, _, _ := strings.Cut(after, `"`)
				return name
			}
		}
	}
	return ""
}
