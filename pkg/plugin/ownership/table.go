package ownership

import (
	"maps"
	"slices"
	"sync"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Table contains the owners of each GPU, so that the cost of a claim does not depend on the number of others. The owners of a GPU are read
// and written under the lock of that GPU; after another process may have changed records, only that GPU is stale until it is reloaded.
// Monitor devices are registered without the lock of a GPU: they are counted, possibly wrongly until the next recovery.
type Table struct {
	mu     sync.Mutex
	owners register
	stale  map[gpu.UUID]bool
	notice notice
}

// newTable returns an empty Table. pending is called with the pending cleanups, in the order of the GPUs, whenever they change; it must not
// block, and may be nil.
func newTable(pending func([]gpu.PendingCleanup)) *Table {
	return &Table{owners: register{}, stale: map[gpu.UUID]bool{}, notice: notice{released: make(chan struct{}), report: pending}}
}

// Invalidate marks the owners of these GPUs as out of date.
func (t *Table) Invalidate(uuids []gpu.UUID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range uuids {
		t.stale[id] = true
	}
}

// Current reports whether the owners of these GPUs match the records.
func (t *Table) Current(uuids []gpu.UUID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(uuids, func(id gpu.UUID) bool { return t.stale[id] })
}

// Reload replaces the owners of these GPUs with the owners in the records.
func (t *Table) Reload(uuids []gpu.UUID, records []*checkpoint.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range uuids {
		delete(t.owners, id)
		delete(t.stale, id)
	}
	for _, r := range records {
		t.owners.add(r, uuids)
	}
	t.notice.release() // another process may have released a GPU
	t.notice.pending(t.owners)
}

// Put replaces the claim's registered record.
func (t *Table) Put(r *checkpoint.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owners.drop(r.Claim.UID)
	t.owners.add(r, r.GPUs())
	if r.State == checkpoint.Releasing { // some of its devices may be free
		t.notice.release()
	}
	t.notice.pending(t.owners)
}

// Remove drops a claim and wakes the calls that wait for its GPUs.
func (t *Table) Remove(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owners.drop(uid)
	t.notice.release()
	t.notice.pending(t.owners)
}

// Differing lists the GPUs whose owners differ from these records, possibly because of a call in flight.
func (t *Table) Differing(records []*checkpoint.Record) []gpu.UUID {
	recorded := register{}
	for _, r := range records {
		recorded.add(r, r.GPUs())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var uuids []gpu.UUID
	for id, claims := range t.owners {
		if !maps.EqualFunc(claims, recorded[id], owner.equal) {
			uuids = append(uuids, id)
		}
		delete(recorded, id)
	}
	return slices.AppendSeq(uuids, maps.Keys(recorded))
}

// Conflict is the reason why a record's devices are not free.
type Conflict struct {
	// Owner is the other claim, which owns a device of GPU.
	Owner checkpoint.Claim
	GPU   gpu.UUID
	// Wanted is the record's use of the GPU that the owner's device excludes.
	Wanted gpu.Use
	// Released is closed when a claim releases a GPU after the conflict was found.
	Released <-chan struct{}
}

// Conflict finds another claim whose devices exclude the record's devices; nil if there is none.
func (t *Table) Conflict(r *checkpoint.Record) *Conflict {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, wanted := range ownedBy(r) {
		for uid, other := range t.owners[id] {
			if uid == r.Claim.UID {
				continue
			}
			if use, conflict := other.excluded(wanted); conflict {
				return &Conflict{Owner: other.claim, GPU: id, Wanted: use, Released: t.notice.released}
			}
		}
	}
	return nil
}

// Pending is a claim whose release of a GPU is not finished.
type Pending struct {
	Claim checkpoint.Claim
	GPU   gpu.UUID
	// Wanted is the use of the GPU that is blocked.
	Wanted gpu.Use
}

// PendingCleanups lists the claims whose pending cleanups block the record, each once.
func (t *Table) PendingCleanups(r *checkpoint.Record) []Pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	var pending []Pending
	listed := map[string]bool{r.Claim.UID: true}
	for id, wanted := range ownedBy(r) {
		for uid, other := range t.owners[id] {
			if use, blocked := other.excluded(wanted); blocked && other.releasing && !listed[uid] {
				listed[uid] = true
				pending = append(pending, Pending{Claim: other.claim, GPU: id, Wanted: use})
			}
		}
	}
	return pending
}

// Releasing reports whether the claim's release is known to have begun, even if its record could not be written.
func (t *Table) Releasing(uid string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, claims := range t.owners {
		if claims[uid].releasing {
			return true
		}
	}
	return false
}

// Counts returns the number of claims with a record, and of claims that are being released.
func (t *Table) Counts() (claims, releasing int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := map[string]bool{}
	for _, owners := range t.owners {
		for uid, o := range owners {
			known[uid] = o.releasing
		}
	}
	for _, yes := range known {
		if yes {
			releasing++
		}
	}
	return len(known), releasing
}

// notice calls the listeners about changes. It is used under the table's mutex.
type notice struct {
	// released is closed, and replaced, when a claim releases GPUs.
	released chan struct{}
	report   func([]gpu.PendingCleanup)
	reported []gpu.PendingCleanup
}

// release wakes all calls that wait for a GPU.
func (n *notice) release() {
	close(n.released)
	n.released = make(chan struct{})
}

// pending reports the pending cleanups if they have changed.
func (n *notice) pending(owners register) {
	pending := owners.pending()
	if slices.EqualFunc(pending, n.reported, gpu.PendingCleanup.Equal) {
		return
	}
	n.reported = pending
	if n.report != nil {
		n.report(slices.Clone(pending))
	}
}
