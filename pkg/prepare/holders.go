package prepare

import (
	"maps"
	"slices"
	"sync"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// holders knows which claims' records name which GPUs, so that a claim costs the same however many others there are. It
// mirrors the records. What it knows of a GPU's owners is read and written under the lock of that GPU; after another process may
// have changed records, that GPU alone is distrusted until it is learned anew. Who only looks at a GPU needs no lock of it: he is
// known to be counted, and may be counted wrongly until the records are settled the next time.
type holders struct {
	mu     sync.Mutex
	byGPU  map[gpu.UUID]map[string]holding
	doubts map[gpu.UUID]bool
	change chan struct{}
	// owing is told the GPUs that are owed whenever they change; owed is what it was told last.
	owing func(debts []gpu.PendingCleanup)
	owed  []gpu.PendingCleanup
}

// holding is one claim's use of a GPU.
type holding struct {
	claim checkpoint.Claim
	// uses are what it has of the GPU. None of it is for admin access, which stands in nobody's way: what such a claim leaves is on no
	// GPU, and is taken away under the claim's lock alone.
	uses []gpu.Use
	// debt: the claim is being released and its effects are still there.
	debt bool
	// failed: releasing it was tried in vain, or would be because only a newer version can.
	failed bool
}

// equal compares what is known; a claim's UID is what it is known by.
func (h holding) equal(other holding) bool {
	return slices.Equal(h.uses, other.uses) && h.debt == other.debt && h.failed == other.failed
}

// excludes tells whether what another claim has of the same GPU cannot be beside it.
func (h holding) excludes(other holding) bool {
	return slices.ContainsFunc(h.uses, func(u gpu.Use) bool {
		return slices.ContainsFunc(other.uses, func(v gpu.Use) bool { return gpu.Excludes(u, v) })
	})
}

// part tells whether it has MIG devices of the GPU.
func (h holding) part() bool {
	return slices.ContainsFunc(h.uses, func(u gpu.Use) bool { return u.Type == gpu.TypeMIG })
}

// with is the holding and one result more, if that has more than a look.
func (h holding) with(r *checkpoint.Result) holding {
	if use := r.Use(); use.Owns() {
		h.uses = append(slices.Clone(h.uses), use)
	}
	return h
}

// newHolders knows nothing yet. owing may be nil; it must not block.
func newHolders(owing func(debts []gpu.PendingCleanup)) *holders {
	return &holders{
		byGPU: map[gpu.UUID]map[string]holding{}, doubts: map[gpu.UUID]bool{}, change: make(chan struct{}), owing: owing,
	}
}

// distrust marks what is known of these GPUs as out of date.
func (h *holders) distrust(uuids []gpu.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range uuids {
		h.doubts[id] = true
	}
}

// trusted tells whether what is known of these GPUs is what the records say.
func (h *holders) trusted(uuids []gpu.UUID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !slices.ContainsFunc(uuids, func(id gpu.UUID) bool { return h.doubts[id] })
}

// relearn forgets what it knows of these GPUs and learns it from the records.
func (h *holders) relearn(uuids []gpu.UUID, records []*checkpoint.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range uuids {
		delete(h.byGPU, id)
		delete(h.doubts, id)
	}
	for _, r := range records {
		h.set(r, uuids)
	}
	h.announce() // another process may have let go
	h.tellOwed()
}

// put learns one record.
func (h *holders) put(r *checkpoint.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unset(r.Claim.UID)
	h.set(r, r.GPUs())
	if r.State == checkpoint.Releasing { // it may have let go of some
		h.announce()
	}
	h.tellOwed()
}

// remove forgets a claim and wakes those who wait for its GPUs.
func (h *holders) remove(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unset(uid)
	h.announce()
	h.tellOwed()
}

// set learns what the record says of these GPUs.
func (h *holders) set(r *checkpoint.Record, uuids []gpu.UUID) {
	for i := range r.Results {
		id := r.Results[i].GPUUUID
		if !slices.Contains(uuids, id) {
			continue
		}
		if h.byGPU[id] == nil {
			h.byGPU[id] = map[string]holding{}
		}
		held := h.byGPU[id][r.Claim.UID]
		if holds(r, &r.Results[i]) {
			held = held.with(&r.Results[i])
		}
		held.claim, held.debt, held.failed = r.Claim, r.State == checkpoint.Releasing, r.PendingCleanup != nil || r.Newer()
		h.byGPU[id][r.Claim.UID] = held
	}
}

// holds tells whether the result is still the claim's. What a claim that is being released cannot undo yet keeps the devices that it
// is on, and no others.
func holds(r *checkpoint.Record, result *checkpoint.Result) bool {
	if r.State != checkpoint.Releasing || len(r.Steps) == 0 || r.Newer() {
		return true
	}
	return slices.ContainsFunc(r.Steps, func(s checkpoint.Step) bool {
		return s.Target == result.GPUUUID && (s.Device == "" || s.Device == result.Device)
	})
}

func (h *holders) unset(uid string) {
	for id, claims := range h.byGPU {
		delete(claims, uid)
		if len(claims) == 0 {
			delete(h.byGPU, id)
		}
	}
}

// differing lists the GPUs of which these records say something else than is known. A call that is running may be why.
func (h *holders) differing(records []*checkpoint.Record) []gpu.UUID {
	said := newHolders(nil)
	for _, r := range records {
		said.set(r, r.GPUs())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var uuids []gpu.UUID
	for id, claims := range h.byGPU {
		if !maps.EqualFunc(claims, said.byGPU[id], holding.equal) {
			uuids = append(uuids, id)
		}
		delete(said.byGPU, id)
	}
	return slices.AppendSeq(uuids, maps.Keys(said.byGPU))
}

// tellOwed tells what is owed, where that is news.
func (h *holders) tellOwed() {
	var owed []gpu.PendingCleanup
	for _, id := range slices.Sorted(maps.Keys(h.byGPU)) {
		var debt gpu.PendingCleanup
		for _, uid := range slices.Sorted(maps.Keys(h.byGPU[id])) {
			if held := h.byGPU[id][uid]; held.failed && len(held.uses) > 0 {
				debt.GPU, debt.Uses = id, append(debt.Uses, held.uses...)
			}
		}
		if debt.GPU != "" {
			owed = append(owed, debt)
		}
	}
	if slices.EqualFunc(owed, h.owed, gpu.PendingCleanup.Equal) {
		return
	}
	h.owed = owed
	if h.owing != nil {
		h.owing(slices.Clone(owed))
	}
}

// announce wakes all waiters.
func (h *holders) announce() {
	close(h.change)
	h.change = make(chan struct{})
}

// conflict returns another claim that owns what the record is to own, on which GPU, and a channel that is closed at the next
// removal of any claim; nil when there is none.
func (h *holders) conflict(r *checkpoint.Record) (checkpoint.Claim, gpu.UUID, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, own := range holdings(r) {
		for other, held := range h.byGPU[id] {
			if other != r.Claim.UID && held.excludes(own) {
				return held.claim, id, h.change
			}
		}
	}
	return checkpoint.Claim{}, "", nil
}

// holdings are what a record owns of each GPU.
func holdings(r *checkpoint.Record) map[gpu.UUID]holding {
	own := map[gpu.UUID]holding{}
	for i := range r.Results {
		if id := r.Results[i].GPUUUID; !r.Results[i].Admin {
			own[id] = own[id].with(&r.Results[i])
		}
	}
	return own
}

// debtor is a claim whose release of a GPU is not finished.
type debtor struct {
	claim checkpoint.Claim
	gpu   gpu.UUID
}

// debtors lists the debts that are in the record's way, each once.
func (h *holders) debtors(r *checkpoint.Record) []debtor {
	h.mu.Lock()
	defer h.mu.Unlock()
	var debts []debtor
	listed := map[string]bool{r.Claim.UID: true}
	for id, own := range holdings(r) {
		for other, held := range h.byGPU[id] {
			if held.debt && held.excludes(own) && !listed[other] {
				listed[other] = true
				debts = append(debts, debtor{claim: held.claim, gpu: id})
			}
		}
	}
	return debts
}

// releasing returns whether the claim's release is known to have begun, also where its record could not be written.
func (h *holders) releasing(uid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, claims := range h.byGPU {
		if claims[uid].debt {
			return true
		}
	}
	return false
}

func (h *holders) counts() (claims, debts int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	indebted := map[string]bool{}
	for _, held := range h.byGPU {
		for uid, one := range held {
			indebted[uid] = one.debt
		}
	}
	for _, debt := range indebted {
		if debt {
			debts++
		}
	}
	return len(indebted), debts
}
