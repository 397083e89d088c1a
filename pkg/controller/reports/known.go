package reports

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/seats"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// maxKnown limits the cache: about 5 MB, and as many items as in a list.
const maxKnown = maxItems

// known caches the nodes of items that were listed or found: a download consists of many requests, deletions and commands follow a list, and
// each item is on one node only. Use newKnown.
type known struct{ nodes *lru.Cache }

// knownKey identifies an item.
type knownKey struct{ resource, namespace, id string }

func newKnown() known { return known{lru.New(maxKnown)} }

func (k known) node(resource, namespace, id string) string {
	node, _ := k.nodes.Get(knownKey{resource, namespace, id})
	name, _ := node.(string)
	return name
}

func (k known) put(resource string, of session.Session) {
	k.nodes.Add(knownKey{resource, of.Namespace, of.ID}, of.Node)
}

// remove drops a deleted report.
func (k known) remove(r report.Report) { k.nodes.Remove(knownKey{resource, r.Namespace, r.ID}) }

// find returns the item of that name in a namespace; silent are the nodes that did not answer, and may have it. If a list contained the
// item, only its node is asked.
func find[T item](ctx context.Context, n *Nodes, namespace, id string, by seats.Party) (one T, found bool, silent []string, err error) {
	q := Query{Namespace: namespace, ID: id, Limit: 1, line: lineOf(by)}
	if q.Node = n.known.node(kindOf[T]().resource, namespace, id); q.Node != "" {
		at, err := list[T](ctx, n, q)
		switch {
		case err == nil && len(at.Items) > 0:
			return at.Items[0], true, nil, nil
		case err == nil && len(at.Silent) > 0:
			return one, false, at.Silent, nil
		}
	}
	q.Node = ""
	all, err := list[T](ctx, n, q)
	if err != nil {
		return one, false, nil, err
	}
	if len(all.Items) > 0 {
		return all.Items[0], true, nil, nil
	}
	return one, false, append(all.Silent, all.Rest...), nil
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
