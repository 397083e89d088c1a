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
	owing func(uuids []gpu.UUID)
	owed  []gpu.UUID
}

// holding is one claim's use of a GPU.
type holding struct {
	claim checkpoint.Claim
	// owns is false for admin access, which stands in nobody's way: what such a claim leaves is on no GPU, and is taken away under
	// the claim's lock alone.
	owns bool
	// debt: the claim is being released and its effects are still there.
	debt bool
	// failed: releasing it was tried in vain, or would be because only a newer version can.
	failed bool
}

// equal compares what is known; a claim's UID is what it is known by.
func (h holding) equal(other holding) bool {
	return h.owns == other.owns && h.debt == other.debt && h.failed == other.failed
}

// newHolders knows nothing yet. owing may be nil; it must not block.
func newHolders(owing func(uuids []gpu.UUID)) *holders {
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
		was := h.byGPU[id][r.Claim.UID]
		h.byGPU[id][r.Claim.UID] = holding{
			claim: r.Claim, owns: was.owns || !r.Results[i].Admin, debt: r.State == checkpoint.Releasing,
			failed: r.Debt != nil || r.Newer(),
		}
	}
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

// tellOwed tells which GPUs are owed, where that is news.
func (h *holders) tellOwed() {
	var owed []gpu.UUID
	for id, claims := range h.byGPU {
		for _, held := range claims {
			if held.failed && held.owns {
				owed = append(owed, id)
				break
			}
		}
	}
	slices.Sort(owed)
	if slices.Equal(owed, h.owed) {
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

// conflict returns another claim that owns one of the GPUs, and a channel that is closed at the next removal of any claim;
// nil when there is none.
func (h *holders) conflict(uid string, uuids []gpu.UUID) (checkpoint.Claim, gpu.UUID, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range uuids {
		for other, held := range h.byGPU[id] {
			if other != uid && held.owns {
				return held.claim, id, h.change
			}
		}
	}
	return checkpoint.Claim{}, "", nil
}

// debtor is a claim whose release of a GPU is not finished.
type debtor struct {
	claim checkpoint.Claim
	gpu   gpu.UUID
}

// debtors lists the debts on these GPUs, each once.
func (h *holders) debtors(uid string, uuids []gpu.UUID) []debtor {
	h.mu.Lock()
	defer h.mu.Unlock()
	var debts []debtor
	listed := map[string]bool{uid: true}
	for _, id := range uuids {
		for other, held := range h.byGPU[id] {
			if held.debt && held.owns && !listed[other] {
				listed[other] = true
				debts = append(debts, debtor{claim: held.claim, gpu: id})
			}
		}
	}
	return debts
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
