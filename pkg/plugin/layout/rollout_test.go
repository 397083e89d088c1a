package layout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// rolled is the rollout of a node with one GPU that was advertised whole, at a time that passes by calls alone.
type rolled struct {
	*Rollout
	g       *gpu.GPU
	now     time.Time
	records []*checkpoint.Record
}

func newRolled() *rolled {
	g := &gpu.GPU{UUID: firstUUID, ID: "aaaaaaaa", MIG: &gpu.MIG{Profiles: []gpu.MIGProfile{
		{ID: 9, Name: "3g.40gb", Slices: 3, Placements: []gpu.Placement{{Start: 0, Size: 4}}},
	}}}
	r := &rolled{Rollout: NewRollout("n0"), g: g, now: time.Unix(1000, 0)}
	r.aim(whole)
	return r
}

var (
	whole       = gpu.Modes{Whole: true}
	partitioned = gpu.Modes{MIG: []string{"3g.40gb"}}
	either      = gpu.Modes{Whole: true, MIG: []string{"3g.40gb"}}
)

func (r *rolled) aim(to gpu.Modes) (gpu.Modes, Transition) {
	return r.Aim(r.g, to, Facts{Records: r.records, Limit: func(o gpu.Modes) gpu.Modes { return o }, Now: r.now})
}

// taints sets whether the API server stores the taints of all leaving devices, or none.
func (r *rolled) taints(stored bool) {
	seen := map[gpu.PoolDevice]bool{}
	for at := range r.Leaving() {
		seen[at] = stored
	}
	r.Tainted(seen, true, r.now)
}

// TestRollout_Transitions_LeadFromPhaseToPhase: each row lists the events of a GPU that is advertised whole, and the phase that follows.
func TestRollout_Transitions_LeadFromPhaseToPhase(t *testing.T) {
	t.Parallel()
	type step struct {
		what  string
		do    func(r *rolled) Transition
		moved Transition
		phase Phase
	}
	aim := func(to gpu.Modes, moved Transition, phase Phase) step {
		return step{"aim", func(r *rolled) Transition { _, moved := r.aim(to); return moved }, moved, phase}
	}
	do := func(what string, phase Phase, do func(r *rolled)) step {
		return step{what, func(r *rolled) Transition { do(r); return Unchanged }, Unchanged, phase}
	}
	begins := aim(partitioned, Began, Draining)
	tainted := do("taints are stored", Draining, func(r *rolled) { r.taints(true) })
	elapses := do("the taint time is over", AwaitingRelease, func(r *rolled) { r.now = r.now.Add(taintTime) })
	for name, steps := range map[string][]step{
		"nothing changes":               {aim(whole, Unchanged, Stable)},
		"devices only join":             {aim(gpu.Modes{Whole: true, OneShare: true}, Unchanged, Stable)},
		"the pool changes":              {aim(either, Began, Draining)},
		"a layout is desired again":     {begins, aim(partitioned, Unchanged, Draining)},
		"a change goes on to its end":   {begins, tainted, elapses, do("it is complete", AwaitingRelease, func(r *rolled) { r.Complete(gpu.Layout{firstUUID: partitioned}) }), aim(partitioned, Ended, Stable)},
		"it is taken back at once":      {begins, aim(whole, Ended, Stable)},
		"it is taken back late":         {begins, tainted, elapses, aim(whole, Ended, Stable)},
		"another one is desired":        {begins, tainted, elapses, aim(either, Began, Draining)},
		"taints are not stored":         {begins, do("none is stored", Draining, func(r *rolled) { r.taints(false) }), do("time passes", Draining, func(r *rolled) { r.now = r.now.Add(time.Hour) })},
		"the taint time is not over":    {begins, tainted, do("almost", Draining, func(r *rolled) { r.now = r.now.Add(taintTime - 1) })},
		"taints vanish":                 {begins, tainted, elapses, do("they vanish", Draining, func(r *rolled) { r.taints(false) }), tainted, elapses},
		"taints stay":                   {begins, tainted, elapses, do("they are seen again", AwaitingRelease, func(r *rolled) { r.taints(true) })},
		"the GPU goes":                  {begins, tainted, elapses, do("it is not there", Stable, func(r *rolled) { r.Retain(nil) }), begins},
		"taints are not supported":      {begins, do("they are dropped", Draining, func(r *rolled) { r.Tainted(map[gpu.PoolDevice]bool{wholeOfFirst: false}, false, r.now) }), elapses},
		"a claim has what would change": {do("it is prepared", Stable, func(r *rolled) { r.records = append(r.records, holds("n0", first)) }), begins},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRolled()
			require.Equal(t, Stable, r.Phase(firstUUID, r.now))
			for i, s := range steps {
				assert.Equal(t, s.moved, s.do(r), "%d: %s", i, s.what)
				assert.Equal(t, s.phase, r.Phase(firstUUID, r.now), "%d: %s", i, s.what)
				assert.Equal(t, s.phase != Stable, len(r.Leaving()) > 0, "%d: what leaves is tainted until it has left", i)
			}
		})
	}
}

// TestRollout_Changing_AdvertisedAsBefore until the change is complete.
func TestRollout_Changing_AdvertisedAsBefore(t *testing.T) {
	t.Parallel()
	r := newRolled()
	advertised, _ := r.aim(partitioned)
	assert.Equal(t, whole, advertised)
	target, known := r.Target(firstUUID)
	assert.True(t, known)
	assert.Equal(t, partitioned, target)
	r.Complete(gpu.Layout{firstUUID: partitioned})
	advertised, _ = r.aim(partitioned)
	assert.Equal(t, partitioned, advertised)
	_, known = r.Target("GPU-other")
	assert.False(t, known)
}

// TestRollout_Unrecorded_RecordsOfWhatLeavesCount, and no others: admin access keeps nothing from changing.
func TestRollout_Unrecorded_RecordsOfWhatLeavesCount(t *testing.T) {
	t.Parallel()
	r := newRolled()
	r.aim(partitioned)
	admin := holds("n0", first)
	admin.Results[0].Admin = true
	assert.Equal(t, []gpu.UUID{firstUUID}, r.Unrecorded(nil))
	assert.Equal(t, []gpu.UUID{firstUUID}, r.Unrecorded([]*checkpoint.Record{admin, holds("n0", second), holds(ownPool, first)}))
	assert.Empty(t, r.Unrecorded([]*checkpoint.Record{holds("n0", first)}))
}

// TestRollout_Defer_EachGPUForItself: a failure defers the checks that were due; an answer applies to the others too.
func TestRollout_Defer_EachGPUForItself(t *testing.T) {
	t.Parallel()
	r := newRolled()
	r.aim(partitioned)
	due := func() bool { return r.changes[firstUUID].check.Due(r.now) }
	assert.True(t, due())
	r.Defer([]gpu.UUID{firstUUID, "GPU-other"}, false, r.now)
	assert.False(t, due())
	r.now = r.now.Add(checkFirst / 2)
	r.Defer([]gpu.UUID{firstUUID}, true, r.now)
	r.now = r.now.Add(checkFirst / 2)
	assert.False(t, due(), "it was answered in the meantime")
	r.changes.checkNow()
	assert.True(t, due())
}
