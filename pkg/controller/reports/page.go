package reports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// page is a list under construction.
type page[T item] struct {
	*Query
	Found[T]
	nodes *Nodes
	cost  int
}

// full reports whether the list has reached a limit.
func (p *page[T]) full() bool { return len(p.Items) >= p.items() || p.cost >= maxCost }

// add adds the items of a node's answer, and asks for more if there are any. It returns the end of the list if that is within the node's
// items.
func (p *page[T]) add(ctx context.Context, e Endpoint, a answered[T]) *Position {
	at := Position{Node: e.Node}
	if e.Node == p.After.Node {
		at = p.After
	}
	claims := false
	for first := true; ; first = false {
		if a.err != nil {
			if ctx.Err() != nil {
				return &at
			}
			p.Silent = append(p.Silent, e.Node)
			return nil
		}
		end := p.take(&at, a.nodeList)
		if at.After == "" && !claims { // further answers may repeat them
			p.claims(ctx, a.claims)
			claims = len(a.claims) > 0
		}
		if end != nil {
			return end
		}
		// The first answer of a plugin of an earlier version may contain nothing after the position.
		progress := a.last != "" && a.last != at.After
		at.After, at.Read = a.last, at.Read+a.read
		switch {
		case !a.more:
			return nil
		case !progress && !first, at.Read >= maxReports:
			p.Truncated = append(p.Truncated, e.Node)
			return nil
		case p.full():
			return &at
		}
		a = p.askMore(ctx, e, at)
	}
}

// take adds items as long as there is room in the list. It returns the end of the list if that is before the last of them.
func (p *page[T]) take(at *Position, list nodeList[T]) *Position {
	for i, one := range list.items {
		if p.full() {
			end := *at
			if i > 0 {
				end.After = list.items[i-1].process().Key()
			}
			end.Read += i // items that were omitted between them are read again, and counted then
			return &end
		}
		p.Items = append(p.Items, one)
		p.nodes.known.put(one.kind().resource, one.process())
		p.cost += one.cost()
	}
	return nil
}

// claims adds a node's claims of the query's namespace.
func (p *page[T]) claims(ctx context.Context, all []session.Claim) {
	for _, c := range all {
		of := session.Session{Namespace: c.Namespace, NamespaceUID: c.NamespaceUID}
		if c.Namespace == "" || p.Namespace != "" && c.Namespace != p.Namespace || !p.nodes.current(ctx, p.Query, of) {
			continue
		}
		p.Claims = append(p.Claims, v1alpha1.ArmedClaim{Namespace: c.Namespace, Claim: c.Claim, ClaimUID: c.ClaimUID, Armed: c.Armed})
		p.cost += claimCost
	}
}

// askMore asks a node for items after a position: as many as there is room for in the list.
func (p *page[T]) askMore(ctx context.Context, e Endpoint, at Position) answered[T] {
	give, err := p.nodes.slots.take(ctx, p.line)
	if err != nil {
		return answered[T]{err: err}
	}
	defer give()
	b := bounds{bytes: p.nodes.limits.answer, cost: maxCost - p.cost, items: maxReports - at.Read, kept: p.items() - len(p.Items)}
	if p.Match == nil {
		b.items = min(b.items, b.kept)
	}
	list, err := askNode[T](ctx, p.nodes, e, p.Query, at.After, b)
	return answered[T]{list, err}
}

// errSlow is the error of a list without items because no node was asked within its time.
var errSlow = errors.New("no node was queried in time because earlier queries have not finished")

// list asks nodes, up to namespaceAsked of them at once, until the list is full or its time is over. There are no items in a namespace
// that does not exist.
func list[T item](ctx context.Context, n *Nodes, q Query) (found Found[T], err error) {
	if q.Namespace != "" {
		uid, err := n.namespaces.Current(ctx, q.Namespace)
		if err != nil || uid == "" {
			return found, err
		}
		q.namespaceUID = uid
	}
	endpoints, err := n.open(ctx, &q)
	if err != nil {
		return found, err
	}
	limited, stop := context.WithTimeout(ctx, n.limits.list)
	defer stop()
	p := &page[T]{Query: &q, nodes: n}
	answers := askAhead[T](limited, n, endpoints, &q)
	for i, e := range endpoints {
		end := &Position{Node: e.Node}
		if e.Node == q.After.Node {
			end = &q.After
		}
		if !p.full() {
			answer, ok := answers.take(limited, i)
			if ok {
				end = p.add(limited, e, answer)
			}
		}
		if ctx.Err() != nil {
			return found, ctx.Err()
		}
		if end == nil {
			continue
		}
		if i == 0 && len(p.Items) == 0 && end.After == q.After.After {
			return found, errSlow
		}
		p.Next = end
		for _, e := range endpoints[i:] {
			p.Rest = append(p.Rest, e.Node)
		}
		break
	}
	return p.Found, nil
}

// open returns the endpoints of the nodes whose items may be in the list, in order.
func (n *Nodes) open(ctx context.Context, q *Query) ([]Endpoint, error) {
	all, err := n.endpoints(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding the plugins of the nodes: %w", err)
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Endpoint) int { return strings.Compare(a.Node, b.Node) })
	all = slices.CompactFunc(all, func(a, b Endpoint) bool { return a.Node == b.Node })
	return slices.DeleteFunc(all, func(e Endpoint) bool { return e.Node < q.After.Node || q.Node != "" && e.Node != q.Node }), nil
}
