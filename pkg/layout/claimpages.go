package driver

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
)

const (
	// pageClaims is how many claims a page has, unless the list would take longer than pagesMost pages then: where it goes on is
	// forgotten by the API server after five minutes.
	pageClaims = 250
	pagesMost  = 40
	// pageTimeout is how long a page may take: an answer that never ends must not keep the configuration from being read.
	pageTimeout = time.Minute
)

// claimList is a list of the cluster's claims that is being read page by page.
type claimList struct {
	// asked are the changes that it decides about, as they were when it began.
	asked map[gpu.UUID]askedChange
	// leaving are the devices that it looks for, and allocated those of them that it has found.
	leaving, allocated map[gpu.PoolDevice]bool
	// next is where the next page begins, limit how many claims it has, pages how many were read.
	next  string
	limit int64
	pages int
}

// askedChange is a change, and since when its taints had been seen.
type askedChange struct {
	change *change
	since  time.Time
}

// gpus are those that the list is about.
func (l *claimList) gpus() []gpu.UUID { return slices.Collect(maps.Keys(l.asked)) }

// decided tells whether nothing depends on the pages that follow: all the GPUs have allocated devices.
func (l *claimList) decided() bool {
	for _, asked := range l.asked {
		if !overlap(asked.change.leaving, l.allocated) {
			return false
		}
	}
	return true
}

// readClaims reads the next page of the claims, where GPUs are ready to change and it is this node's moment to read one. With the last
// page it settles the GPUs of which no device is allocated; true when there are any. The GPUs are those that an error is about.
func (o *Offering) readClaims(ctx context.Context, ready []gpu.UUID) (settled bool, about []gpu.UUID, err error) {
	list, begins := o.pageDue(ready)
	if begins {
		if err := o.look(ctx); err != nil { // what was tainted may not be so any more
			return false, ready, err
		}
		list = o.beginList(ready)
	}
	if list == nil {
		return false, nil, nil
	}
	about = list.gpus()
	reading, stop := context.WithTimeout(ctx, pageTimeout)
	defer stop()
	page, err := o.ports.Allocated(reading, kube.AllocatedQuery{Devices: list.leaving, Continue: list.next, Limit: list.limit})
	if err != nil {
		o.endList()
		return false, about, err
	}
	if !o.addPage(list, page) {
		return false, nil, nil
	}
	defer o.endList()
	if list.pages > 1 {
		if err := o.look(ctx); err != nil {
			return false, about, err
		}
	}
	settled, err = o.settle(list)
	return settled, about, err
}

// pageDue returns the list of which a page is to be read now, or tells that one may begin. Without either it is not time, or there is
// nothing to be decided.
func (o *Offering) pageDue(ready []gpu.UUID) (list *claimList, begins bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d, now := &o.drain, time.Now()
	if d.list != nil && !o.stillAsked(d.list) {
		d.list = nil
	}
	if d.list == nil && len(ready) == 0 {
		d.page = time.Time{}
		return nil, false
	}
	if d.page.IsZero() || !now.Before(d.page) {
		first := d.page.IsZero()
		d.page = pageSlot(o.ports.NodeName, now)
		return d.list, !first && d.list == nil
	}
	return nil, false
}

// stillAsked tells whether a list can still decide about some GPU.
func (o *Offering) stillAsked(list *claimList) bool {
	for id, asked := range list.asked {
		if o.going.changes[id] == asked.change && o.drain.leading {
			return true
		}
	}
	return false
}

// beginList begins a list for those GPUs of which the taints are still there; nil without any.
func (o *Offering) beginList(ready []gpu.UUID) *claimList {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := &claimList{
		asked: map[gpu.UUID]askedChange{}, limit: pageClaims, leaving: map[gpu.PoolDevice]bool{}, allocated: map[gpu.PoolDevice]bool{},
	}
	for _, id := range ready {
		if c := o.going.changes[id]; o.going.due(id, time.Now()) {
			list.asked[id] = askedChange{change: c, since: c.since}
			maps.Copy(list.leaving, c.leaving)
		}
	}
	if len(list.asked) == 0 || !o.drain.leading {
		return nil
	}
	o.drain.list = list
	return list
}

// addPage adds a page; true when the list is complete.
func (o *Offering) addPage(list *claimList, page *kube.AllocatedPage) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.Copy(list.allocated, page.Devices)
	list.next, list.pages = page.Continue, list.pages+1
	if list.pages == 1 {
		list.limit = max(pageClaims, page.Remaining/(pagesMost-1)+1)
	}
	return list.next == "" || list.decided()
}

// endList forgets the list: the next question begins with the first page.
func (o *Offering) endList() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drain.list = nil
}

// settle advertises the new layout of the GPUs of a list of which nothing that leaves is allocated, and puts the others off; false when
// all are. What the list was read for may be another question by now: a GPU whose change is another one since, or has lost its taints, or
// whose devices a claim's record names, is asked about again, and a process that does not lead any more settles nothing. It is saved
// first: a restart that found the old layout would take it back.
func (o *Offering) settle(list *claimList) (bool, error) {
	view := o.ports.Inventory.Current()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.drain.leading {
		return false, nil
	}
	if err := o.resolved(view); err != nil {
		return false, err
	}
	records, err := o.ports.Records()
	if err != nil {
		return false, err
	}
	now, unrecorded := time.Now(), o.going.unrecorded(records)
	next := maps.Clone(o.going.current)
	var busy []gpu.UUID
	settled := false
	for id, asked := range list.asked {
		c := o.going.changes[id]
		switch {
		case c != asked.change, !c.since.Equal(asked.since), !o.going.due(id, now), !slices.Contains(unrecorded, id):
		case overlap(c.leaving, list.allocated):
			c.allocated = common(c.leaving, list.allocated)
			busy = append(busy, id)
		default:
			next[id], settled = c.to, true
		}
	}
	if settled {
		if err := o.save(next); err != nil {
			return false, err
		}
		o.going.current, o.seen = next, nil
	}
	o.going.later(busy, true, now)
	return settled, nil
}
