package metrics

import (
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Claim is the page of one claim that exposes its metrics, in the text format 0.0.4: the values of its exclusive devices and the usage of
// its containers. It omits values of a GPU that other claims use too, because they also concern other tenants. Nil if there is no such
// claim.
func (j *Joined) Claim(uid string) []byte {
	var own []*Allocation
	for _, a := range j.allocations {
		if a.ClaimUID == uid && uid != "" && a.Options.ExposeInContainer {
			own = append(own, a)
		}
	}
	if own == nil {
		return nil
	}
	p := &page{}
	var shown []*board
	for _, b := range j.boards {
		if part := b.of(own); part != nil {
			shown = append(shown, part)
		}
	}
	p.gpus(shown)
	p.xids(slices.DeleteFunc(slices.Clone(shown), func(b *board) bool { return !b.whole.ownedBy(uid) }))
	p.migs(shown)
	p.allocations(j, own)
	p.containers(shown, uid)
	p.begin(&familySampled)
	for _, b := range shown {
		p.sample(seconds(b.At), b.whole.labels, nil)
	}
	return p.text
}

// ownedBy reports whether only this claim uses the device.
func (d *device) ownedBy(uid string) bool {
	return d.sole && len(d.allocations) > 0 && !slices.ContainsFunc(d.allocations, func(a *Allocation) bool {
		return a.ClaimUID != uid || !a.Exclusive()
	})
}

// of is a GPU as visible to the allocations of one claim, without values of shared devices; nil if they use nothing of the GPU.
func (b *board) of(own []*Allocation) *board {
	has := func(of, mig gpu.UUID) bool {
		return slices.ContainsFunc(own, func(a *Allocation) bool { return a.GPU == of && a.MIG == mig })
	}
	id := b.Identity.UUID
	if !slices.ContainsFunc(own, func(a *Allocation) bool { return a.GPU == id }) {
		return nil
	}
	g := *b.GPU
	g.XIDs = xidsSince(g.XIDs, own[0].Since)
	part := &board{GPU: &g, whole: b.whole.visibleTo(own[0].ClaimUID)}
	part.all = append(part.all, part.whole)
	for _, d := range b.migs {
		if has(id, d.mig.UUID) {
			part.migs = append(part.migs, d.visibleTo(own[0].ClaimUID))
		}
	}
	part.all = append(part.all, part.migs...)
	return part
}

// xidsSince are the errors after a time, counted from 0; at most XIDTimes of each code.
func xidsSince(all []XID, since time.Time) []XID {
	if since.IsZero() {
		return all
	}
	var after []XID
	for _, x := range all {
		before := 0
		for before < len(x.Times) && x.Times[before].Before(since) {
			before++
		}
		if x.Times = x.Times[before:]; len(x.Times) > 0 {
			x.Count = uint64(len(x.Times))
			after = append(after, x)
		}
	}
	return after
}

// visibleTo is a device for one claim: with values if only this claim uses it, and used it when the values were read, otherwise without
// values.
func (d *device) visibleTo(uid string) *device {
	if d.ownedBy(uid) && !d.stale() {
		return d
	}
	masked := *d
	masked.masked = true
	return &masked
}
