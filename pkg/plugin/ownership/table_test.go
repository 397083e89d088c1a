package ownership

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	gpuA gpu.UUID = "GPU-a"
	gpuB gpu.UUID = "GPU-b"
)

func whole(id gpu.UUID) checkpoint.Result {
	return checkpoint.Result{Device: "whole", GPUUUID: id, Type: gpu.TypeGPU}
}

// migDevice is a MIG device of one memory slice.
func migDevice(id gpu.UUID, device string, start int) checkpoint.Result {
	return checkpoint.Result{
		Device: device, GPUUUID: id, Type: gpu.TypeMIG,
		MIG: &checkpoint.MIG{Name: "1g.10gb", Placement: gpu.Placement{Start: start, Size: 1}},
	}
}

func monitored(id gpu.UUID) checkpoint.Result {
	r := whole(id)
	r.Admin = true
	return r
}

func perfmon(id gpu.UUID) checkpoint.Result {
	return checkpoint.Result{Device: "perfmon", GPUUUID: id, Type: gpu.TypePerfmon}
}

func done(uid string, results ...checkpoint.Result) *checkpoint.Record {
	return &checkpoint.Record{Claim: checkpoint.Claim{UID: uid}, State: checkpoint.Done, Results: results}
}

// releasing is a record whose release left effects on these devices of GPU a.
func releasing(uid string, left []string, results ...checkpoint.Result) *checkpoint.Record {
	r := done(uid, results...)
	r.State, r.PendingCleanup = checkpoint.Releasing, &checkpoint.PendingCleanup{Cause: "it is stuck"}
	for _, device := range left {
		r.Steps = append(r.Steps, checkpoint.Step{Kind: "mig", Target: gpuA, Device: device})
	}
	return r
}

func TestTable_OtherClaim_ConflictsWhereDevicesExclude(t *testing.T) {
	t.Parallel()
	first, second := migDevice(gpuA, "mig-0", 0), migDevice(gpuA, "mig-1", 1)
	for name, c := range map[string]struct {
		known, wanted *checkpoint.Record
		conflict, mig bool
	}{
		"same GPU":                {done("a", whole(gpuA)), done("b", whole(gpuA)), true, false},
		"another GPU":             {done("a", whole(gpuB)), done("b", whole(gpuA)), false, false},
		"the claim itself":        {done("a", whole(gpuA)), done("a", whole(gpuA)), false, false},
		"disjoint MIG devices":    {done("a", first), done("b", second), false, false},
		"the same MIG device":     {done("a", first), done("b", first), true, true},
		"a MIG device of a whole": {done("a", whole(gpuA)), done("b", first), true, true},
		"monitored only":          {done("a", whole(gpuA)), done("b", monitored(gpuA)), false, false},
		"owned and monitored":     {done("a", monitored(gpuA)), done("b", whole(gpuA)), false, false},
		"a GPU and its counters":  {done("a", whole(gpuA)), done("b", perfmon(gpuA)), false, false},
		"the same counters":       {done("a", whole(gpuA), perfmon(gpuA)), done("b", perfmon(gpuA)), true, false},
		"other counters":          {done("a", perfmon(gpuB)), done("b", whole(gpuA), perfmon(gpuA)), false, false},
		"a pending cleanup":       {releasing("a", []string{"whole"}, whole(gpuA)), done("b", first), true, true},
		"cleaned up already":      {releasing("a", []string{"mig-0"}, first, second), done("b", second), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := newTable(nil)
			table.Put(c.known)
			conflict := table.Conflict(c.wanted)
			require.Equal(t, c.conflict, conflict != nil)
			if conflict == nil {
				assert.Empty(t, table.PendingCleanups(c.wanted))
				return
			}
			assert.Equal(t, "a", conflict.Owner.UID)
			assert.Equal(t, gpuA, conflict.GPU)
			assert.Equal(t, c.mig, conflict.Wanted.Type == gpu.TypeMIG)
			assert.Equal(t, c.known.State == checkpoint.Releasing, len(table.PendingCleanups(c.wanted)) == 1)
			table.Remove("a")
			select {
			case <-conflict.Released:
			default:
				assert.Fail(t, "a claim that waits is not woken")
			}
			assert.Nil(t, table.Conflict(c.wanted))
		})
	}
}

// A pending cleanup of the whole GPU is not narrowed by a cleanup of a MIG device, in either order.
func TestTable_CleanupsOfWholeGPUAndMIGDevice_BothReported(t *testing.T) {
	t.Parallel()
	for _, uids := range [][2]string{{"a", "b"}, {"b", "a"}} {
		var reported []gpu.PendingCleanup
		table := newTable(func(pending []gpu.PendingCleanup) { reported = pending })
		all, part := whole(gpuA), migDevice(gpuA, "mig-6", 6)
		table.Put(releasing(uids[0], nil, all))
		table.Put(releasing(uids[1], nil, part))
		require.Len(t, reported, 1)
		assert.ElementsMatch(t, []gpu.Use{all.Use(), part.Use()}, reported[0].Uses)
		assert.True(t, reported[0].Blocks(gpu.MIGDevice{GPU: &gpu.GPU{UUID: gpuA}, Profile: &gpu.MIGProfile{}, Placement: gpu.Placement{Size: 1}}))
	}
}

func TestTable_SamePendingCleanups_ReportedOnce(t *testing.T) {
	t.Parallel()
	var reports [][]gpu.PendingCleanup
	table := newTable(func(pending []gpu.PendingCleanup) { reports = append(reports, pending) })
	table.Put(done("a", whole(gpuA)))
	assert.Empty(t, reports)
	for range 2 {
		table.Put(releasing("a", []string{"whole"}, whole(gpuA)))
	}
	require.Len(t, reports, 1)
	table.Remove("a")
	require.Len(t, reports, 2)
	assert.Empty(t, reports[1])
}

func TestTable_InvalidatedGPU_CurrentAfterReload(t *testing.T) {
	t.Parallel()
	table := newTable(nil)
	table.Put(done("a", whole(gpuA)))
	table.Put(done("b", whole(gpuB)))
	table.Invalidate([]gpu.UUID{gpuA})
	assert.False(t, table.Current([]gpu.UUID{gpuA, gpuB}))
	assert.True(t, table.Current([]gpu.UUID{gpuB}))
	records := []*checkpoint.Record{done("c", whole(gpuA)), done("d", whole(gpuB))}
	assert.ElementsMatch(t, []gpu.UUID{gpuA, gpuB}, table.Differing(records))
	table.Reload([]gpu.UUID{gpuA}, records)
	assert.True(t, table.Current([]gpu.UUID{gpuA}))
	assert.Equal(t, "c", table.Conflict(done("x", whole(gpuA))).Owner.UID)
	assert.Equal(t, "b", table.Conflict(done("x", whole(gpuB))).Owner.UID, "the other GPU is left as it is known")
	assert.Equal(t, []gpu.UUID{gpuB}, table.Differing(records))
}

func TestTable_ClaimsOnSeveralGPUs_CountedOnce(t *testing.T) {
	t.Parallel()
	table := newTable(nil)
	table.Put(done("a", whole(gpuA), whole(gpuB)))
	table.Put(releasing("b", nil, migDevice(gpuA, "mig-0", 0)))
	claims, pending := table.Counts()
	assert.Equal(t, []int{2, 1}, []int{claims, pending})
	assert.True(t, table.Releasing("b"))
	assert.False(t, table.Releasing("a"))
}
