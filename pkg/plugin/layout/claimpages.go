package layout

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

const (
	// pageClaims is the number of claims per page, unless the list would have more than pagesMost pages: a continue token of the API server
	// expires after five minutes.
	pageClaims = 250
	pagesMost  = 40
	// pageTimeout limits the time of a page: a response that never ends must not block reading the configuration.
	pageTimeout = time.Minute
)

// pages reads the cluster's claims page by page.
type pages struct {
	node string
	// list is the list that is being read, nil if none is. next is the time at which the next page of a list may be read.
	list *claimList
	next time.Time
}

// claimList is a list of the cluster's claims that is being read.
type claimList struct {
	// checked are the changes that the list decides about, as they were when it began.
	checked map[gpu.UUID]checked
	// leaving are the devices that the list is searched for. allocated are the ones found allocated.
	leaving, allocated map[gpu.PoolDevice]bool
	// token marks the beginning of the next page, limit is the number of claims per page, read counts the pages that were read.
	token string
	limit int64
	read  int
}

// checked is a change, and the time at which its taints were first seen.
type checked struct {
	change  *change
	tainted time.Time
}

// decided reports whether nothing depends on the pages that follow: all the GPUs have allocated devices.
func (l *claimList) decided() bool {
	for _, c := range l.checked {
		if !overlap(c.change.leaving, l.allocated) {
			return false
		}
	}
	return true
}

// add adds a page; true when nothing depends on the pages that follow.
func (l *claimList) add(page *kube.AllocatedPage) bool {
	maps.Copy(l.allocated, page.Devices)
	l.token, l.read = page.Continue, l.read+1
	if l.read == 1 {
		l.limit = max(pageClaims, page.Remaining/(pagesMost-1)+1)
	}
	return l.token == "" || l.decided()
}

// due returns the list of which a page is to be read now, or says that one may begin. Without either the node's page slot is not due, or no
// GPU waits for a decision.
func (p *pages) due(r *Rollout, ready []gpu.UUID, now time.Time) (list *claimList, begins bool) {
	if p.list != nil && !p.list.matters(r) {
		p.list = nil
	}
	if p.list == nil && len(ready) == 0 {
		p.next = time.Time{}
		return nil, false
	}
	if !p.next.IsZero() && now.Before(p.next) {
		return nil, false
	}
	first := p.next.IsZero()
	p.next = pageSlot(p.node, now)
	return p.list, !first && p.list == nil
}

// matters reports whether the list can still decide about some GPU.
func (l *claimList) matters(r *Rollout) bool {
	for id, c := range l.checked {
		if r.changes[id] == c.change {
			return true
		}
	}
	return false
}

// begin starts a list for the GPUs that still await release; nil without any.
func (p *pages) begin(r *Rollout, ready []gpu.UUID, now time.Time) *claimList {
	list := &claimList{
		checked: map[gpu.UUID]checked{}, limit: pageClaims, leaving: map[gpu.PoolDevice]bool{}, allocated: map[gpu.PoolDevice]bool{},
	}
	for _, id := range ready {
		if r.Phase(id, now) == AwaitingRelease {
			c := r.changes[id]
			list.checked[id] = checked{change: c, tainted: c.tainted}
			maps.Copy(list.leaving, c.leaving)
		}
	}
	if len(list.checked) == 0 {
		return nil
	}
	p.list = list
	return list
}

// readClaims reads the next page of the claims when GPUs are ready to change and the node's page slot is due. After the last page it
// changes the layout of the GPUs of which no leaving device is allocated, and returns true if there are any. The returned GPUs are the GPUs
// to which the error applies.
func (d *drain) readClaims(ctx context.Context, ready []gpu.UUID) (changed bool, about []gpu.UUID, err error) {
	p, r := &d.pages, d.state.rollout
	list, begins := p.due(r, ready, time.Now())
	if begins {
		if err := d.checkTaints(ctx); err != nil { // taints may have been removed since
			return false, ready, err
		}
		if d.leading {
			list = p.begin(r, ready, time.Now())
		}
	}
	if list == nil {
		return false, nil, nil
	}
	about = slices.Collect(maps.Keys(list.checked))
	reading, stop := context.WithTimeout(ctx, pageTimeout)
	defer stop()
	page, err := call(reading, d.worker, func(ctx context.Context) (*kube.AllocatedPage, error) {
		return d.options.API.Allocated(ctx, kube.AllocatedQuery{Devices: list.leaving, Continue: list.token, Limit: list.limit})
	})
	if err != nil {
		p.list = nil
		return false, about, err
	}
	if !list.add(page) {
		return false, nil, nil
	}
	p.list = nil
	if list.read > 1 {
		if err := d.checkTaints(ctx); err != nil {
			return false, about, err
		}
	}
	changed, err = d.complete(list)
	return changed, about, err
}

// complete changes the layout of the GPUs of a list of which nothing that leaves is allocated, and defers the others; false when all are deferred.
// The situation may have changed while the list was read: a GPU with another change, with lost taints, or with devices that a claim's record
// names, is checked again, and a process that does not lead any more changes no layout. The layout is saved first: a restart that found the
// old layout would revert the change.
func (d *drain) complete(list *claimList) (bool, error) {
	d.update()
	if err := d.output.latest.Load().Err; err != nil || !d.leading {
		return false, err
	}
	records, err := d.options.Records()
	if err != nil {
		return false, err
	}
	r, now := d.state.rollout, time.Now()
	unrecorded, next := r.Unrecorded(records), maps.Clone(r.current)
	var busy []gpu.UUID
	changed := false
	for id, was := range list.checked {
		c := r.changes[id]
		switch {
		case c != was.change, !c.tainted.Equal(was.tainted), r.Phase(id, now) != AwaitingRelease, !slices.Contains(unrecorded, id):
		case overlap(c.leaving, list.allocated):
			c.allocated = common(c.leaving, list.allocated)
			busy = append(busy, id)
		default:
			next[id], changed = c.to, true
		}
	}
	if changed {
		if err := d.archive.save(next); err != nil {
			return false, err
		}
		r.Complete(next)
		d.output.stale = true
	}
	r.Defer(busy, true, now)
	return changed, nil
}
