package reports

import (
	"context"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// maxKnown bounds what is remembered.
const maxKnown = 4096

// known remembers the node of reports that were asked for: a download is many requests, and only one node has the report.
type known struct {
	mu    sync.Mutex
	nodes map[string]string // by report
}

func (k *known) node(id string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[id]
}

func (k *known) put(id, node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nodes == nil || len(k.nodes) >= maxKnown {
		k.nodes = map[string]string{}
	}
	k.nodes[id] = node
}

// Find returns the report of that name in a namespace; silent are the nodes that did not answer, where it may be.
func (n *Nodes) Find(ctx context.Context, namespace, id string) (r report.Report, found bool, silent []string, err error) {
	q := Query{Namespace: namespace, ID: id, Limit: 1}
	if q.Node = n.known.node(id); q.Node != "" {
		if at, err := n.List(ctx, q); err == nil && len(at.Reports) > 0 {
			return at.Reports[0], true, nil, nil
		}
	}
	q.Node = ""
	all, err := n.List(ctx, q)
	if err != nil {
		return r, false, nil, err
	}
	if len(all.Reports) > 0 {
		r = all.Reports[0]
		n.known.put(id, r.Node)
		return r, true, nil, nil
	}
	return r, false, append(all.Silent, all.Rest...), nil
}

// quiet remembers the nodes that did not answer, so that not every list waits for them.
type quiet struct {
	mu    sync.Mutex
	since map[Endpoint]time.Time // a plugin that started again has another address
}

func (q *quiet) has(e Endpoint, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	since, found := q.since[e]
	return found && now.Sub(since) < quietTime
}

func (q *quiet) put(e Endpoint, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.since == nil || len(q.since) >= maxKnown {
		q.since = map[Endpoint]time.Time{}
	}
	q.since[e] = now
}
