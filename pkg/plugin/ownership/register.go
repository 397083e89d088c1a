package ownership

import (
	"maps"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// register contains the owners of each GPU by the UID of the claim.
type register map[gpu.UUID]map[string]owner

// owner is one claim with devices of a GPU.
type owner struct {
	claim checkpoint.Claim
	// uses are its devices of the GPU. None of them uses admin access, which excludes no device: the cleanup of such a claim affects no GPU,
	// and only requires the claim's lock.
	uses []gpu.Use
	// releasing: the claim is being released and its effects still exist.
	releasing bool
	// held: the scheduler does not know about its devices. An attempt to release it has failed, or would fail because only a newer version
	// can, or it was prepared under an earlier driver name.
	held bool
	// shared is the part that other claims may share.
	shared shared
}

// equal compares uses, states and effects; a claim is identified by its UID.
func (o owner) equal(other owner) bool {
	return slices.Equal(o.uses, other.uses) && o.releasing == other.releasing && o.held == other.held && o.shared.sameSteps(other.shared)
}

// excluded returns the first use of another claim on the same GPU that one of the owner's devices excludes.
func (o owner) excluded(other owner) (use gpu.Use, found bool) {
	at := slices.IndexFunc(other.uses, func(v gpu.Use) bool {
		return slices.ContainsFunc(o.uses, func(u gpu.Use) bool { return gpu.Excludes(u, v) })
	})
	if at < 0 {
		return gpu.Use{}, false
	}
	return other.uses[at], true
}

// with is the owner with one more result, unless that is only monitored.
func (o owner) with(r *checkpoint.Result) owner {
	if use := r.Use(); use.Owns() {
		o.uses = append(slices.Clone(o.uses), use)
	}
	return o
}

// ownedBy returns the uses of a record by GPU.
func ownedBy(r *checkpoint.Record) map[gpu.UUID]owner {
	owned := map[gpu.UUID]owner{}
	for i := range r.Results {
		if id := r.Results[i].GPUUUID; !r.Results[i].Admin {
			owned[id] = owned[id].with(&r.Results[i])
		}
	}
	return owned
}

// add registers the record's uses of these GPUs.
func (g register) add(r *checkpoint.Record, uuids []gpu.UUID) {
	for i := range r.Results {
		id := r.Results[i].GPUUUID
		if !slices.Contains(uuids, id) {
			continue
		}
		if g[id] == nil {
			g[id] = map[string]owner{}
		}
		o := g[id][r.Claim.UID]
		if owns(r, &r.Results[i]) {
			o = o.with(&r.Results[i])
		}
		o.claim, o.releasing, o.held = r.Claim, r.State == checkpoint.Releasing, r.PendingCleanup != nil || r.Newer() || r.Former()
		o.shared = sharedOf(r, id)
		g[id][r.Claim.UID] = o
	}
}

// owns reports whether the claim still owns the result's device. A claim that is being released keeps only the devices whose effects are
// not undone yet.
func owns(r *checkpoint.Record, result *checkpoint.Result) bool {
	if r.State != checkpoint.Releasing || len(r.Steps) == 0 || r.Newer() {
		return true
	}
	return slices.ContainsFunc(r.Steps, func(s checkpoint.Step) bool {
		return s.On(result)
	})
}

// drop removes a claim.
func (g register) drop(uid string) {
	for id, claims := range g {
		delete(claims, uid)
		if len(claims) == 0 {
			delete(g, id)
		}
	}
}

// pending lists the held devices, in the order of the GPUs.
func (g register) pending() []gpu.PendingCleanup {
	var all []gpu.PendingCleanup
	for _, id := range slices.Sorted(maps.Keys(g)) {
		var on gpu.PendingCleanup
		for _, uid := range slices.Sorted(maps.Keys(g[id])) {
			if o := g[id][uid]; o.held && len(o.uses) > 0 {
				on.GPU, on.Uses = id, append(on.Uses, o.uses...)
			}
		}
		if on.GPU != "" {
			all = append(all, on)
		}
	}
	return all
}
