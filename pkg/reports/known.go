package reports

import (
	"context"
	"sync"

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

// Find returns the report of that name in a namespace, also one that is not in a truncated list; silent are the nodes that did not answer,
// where it may be.
func (n *Nodes) Find(ctx context.Context, namespace, id string) (r report.Report, found bool, silent []string, err error) {
	if node := n.known.node(id); node != "" {
		if at, err := n.list(ctx, node, wanted{namespace, id}); err == nil {
			if r, found = named(at.Reports, id); found {
				return r, true, nil, nil
			}
		}
	}
	all, err := n.list(ctx, "", wanted{namespace, id})
	if err != nil {
		return r, false, nil, err
	}
	if r, found = named(all.Reports, id); found {
		n.known.put(id, r.Node)
		return r, true, nil, nil
	}
	return r, false, all.Silent, nil
}

func named(reports []report.Report, id string) (report.Report, bool) {
	for _, r := range reports {
		if r.ID == id {
			return r, true
		}
	}
	return report.Report{}, false
}
