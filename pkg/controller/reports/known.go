package reports

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// maxKnown limits the cache: about 5 MB, and as many reports as in a list.
const maxKnown = maxItems

// known caches the nodes of reports that were listed or found: a download consists of many requests, deletions follow a list, and only one
// node stores each report. Use newKnown.
type known struct{ nodes *lru.Cache }

// knownKey identifies a report.
type knownKey struct{ namespace, id string }

func newKnown() known { return known{lru.New(maxKnown)} }

func (k known) node(namespace, id string) string {
	node, _ := k.nodes.Get(knownKey{namespace, id})
	name, _ := node.(string)
	return name
}

func (k known) put(r report.Report) { k.nodes.Add(knownKey{r.Namespace, r.ID}, r.Node) }

// remove drops a deleted report.
func (k known) remove(r report.Report) { k.nodes.Remove(knownKey{r.Namespace, r.ID}) }

// Find returns the report of that name in a namespace; silent are the nodes that did not answer, and may store it. If a list contained the
// report, only its node is asked.
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

// maxQuiet is the maximum number of silent nodes in the cache.
const maxQuiet = 4096

// quiet caches the nodes that did not answer, so that not every request waits for them.
type quiet struct {
	mu    sync.Mutex
	since map[Endpoint]time.Time // a restarted plugin uses another address
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
