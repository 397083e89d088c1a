package reports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// page is a list under construction.
type page struct {
	*Query
	Found
	nodes *Nodes
	cost  int
}

// full reports whether the list has reached a limit.
func (p *page) full() bool { return len(p.Reports) >= p.items() || p.cost >= maxCost }

// add adds the reports of a node's answer, and asks for more if there are any. It returns the end of the list if that is within the node's
// reports.
func (p *page) add(ctx context.Context, e Endpoint, a answered) *Position {
	at := Position{Node: e.Node}
	if e.Node == p.After.Node {
		at = p.After
	}
	for first := true; ; first = false {
		if a.err != nil {
			if ctx.Err() != nil {
				return &at
			}
			p.Silent = append(p.Silent, e.Node)
			return nil
		}
		if end := p.take(&at, a.nodeList); end != nil {
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
		a = p.nodes.askMore(ctx, e, p, at)
	}
}

// take adds reports as long as there is room in the list. It returns the end of the list if that is before the last of them.
func (p *page) take(at *Position, list nodeList) *Position {
	for i, r := range list.reports {
		if p.full() {
			end := *at
			if i > 0 {
				end.After = list.reports[i-1].Key()
			}
			end.Read += i // reports that were omitted between them are read again, and counted then
			return &end
		}
		p.Reports = append(p.Reports, r)
		p.nodes.known.put(r)
		p.cost += cost(r)
	}
	return nil
}

// askMore asks a node for reports after a position: as many as there is room for in the list.
func (n *Nodes) askMore(ctx context.Context, e Endpoint, p *page, at Position) answered {
	give, err := n.slots.take(ctx, p.line)
	if err != nil {
		return answered{err: err}
	}
	defer give()
	b := bounds{bytes: n.limits.answer, cost: maxCost - p.cost, items: maxReports - at.Read, kept: p.items() - len(p.Reports)}
	if p.Match == nil {
		b.items = min(b.items, b.kept)
	}
	list, err := n.of(ctx, e, p.Query, at.After, b)
	return answered{list, err}
}

// errSlow is the error of a list without reports because no node was asked within its time.
var errSlow = errors.New("no node was queried in time because earlier queries have not finished")

// List asks nodes, up to namespaceAsked of them at once, until the list is full or its time is over. There are no reports in a namespace
// that does not exist.
func (n *Nodes) List(ctx context.Context, q Query) (Found, error) {
	if q.Namespace != "" {
		uid, err := n.namespaces.Current(ctx, q.Namespace)
		if err != nil || uid == "" {
			return Found{}, err
		}
		q.namespaceUID = uid
	}
	endpoints, err := n.open(ctx, &q)
	if err != nil {
		return Found{}, err
	}
	limited, stop := context.WithTimeout(ctx, n.limits.list)
	defer stop()
	p := &page{Query: &q, nodes: n}
	answers := n.askAhead(limited, endpoints, &q)
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
			return Found{}, ctx.Err()
		}
		if end == nil {
			continue
		}
		if i == 0 && len(p.Reports) == 0 && end.After == q.After.After {
			return Found{}, errSlow
		}
		p.Next = end
		for _, e := range endpoints[i:] {
			p.Rest = append(p.Rest, e.Node)
		}
		break
	}
	return p.Found, nil
}

// open returns the endpoints of the nodes whose reports may be in the list, in order.
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
