package reports

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// maxKnown bounds what is remembered: about 5 MB, and as many reports as a list has.
const maxKnown = maxItems

// known remembers the nodes of reports that were listed or found: a download is many requests, deletions follow a list, and only
// one node has each. Use newKnown.
type known struct{ nodes *lru.Cache }

// knownKey is a report.
type knownKey struct{ namespace, id string }

func newKnown() known { return known{lru.New(maxKnown)} }

func (k known) node(namespace, id string) string {
	node, _ := k.nodes.Get(knownKey{namespace, id})
	name, _ := node.(string)
	return name
}

func (k known) put(r report.Report) { k.nodes.Add(knownKey{r.Namespace, r.ID}, r.Node) }

// remove drops a report that was deleted.
func (k known) remove(r report.Report) { k.nodes.Remove(knownKey{r.Namespace, r.ID}) }

// Find returns the report of that name in a namespace; silent are the nodes that did not answer, where it may be. Where a list had the report,
// its node alone is asked.
func (n *Nodes) Find(ctx context.Context, namespace, id string, by seats.Party) (r report.Report, found bool, silent []string, err error) {
	q := Query{Namespace: namespace, ID: id, Limit: 1, line: lineOf(by)}
	if q.Node = n.known.node(namespace, id); q.Node != "" {
		at, err := n.List(ctx, q)
		switch {
		case err == nil && len(at.Reports) > 0:
			return at.Reports[0], true, nil, nil
		case err == nil && len(at.Silent) > 0:
			return r, false, at.Silent, nil
		}
	}
	q.Node = ""
	all, err := n.List(ctx, q)
	if err != nil {
		return r, false, nil, err
	}
	if len(all.Reports) > 0 {
		return all.Reports[0], true, nil, nil
	}
	return r, false, append(all.Silent, all.Rest...), nil
}

// maxQuiet bounds how many nodes are remembered as silent.
const maxQuiet = 4096

// quiet remembers the nodes that did not answer, so that not every request waits for them.
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
	if q.since == nil || len(q.since) >= maxQuiet {
		q.since = map[Endpoint]time.Time{}
	}
	q.since[e] = now
}
