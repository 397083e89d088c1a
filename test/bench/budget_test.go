package bench

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Requests after the answer are not part of the cost. They may be sent before the test receives the answer.
func TestPrepare_OneClaim_CostIsExact(t *testing.T) {
	n := newNode(t, wholeOnly)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for i := range 3 {
		one := reference(i)
		prepare := n.cost(func() error { return n.plugin.Prepare(ctx, one) }, getClaim(one))
		assert.Empty(t, cmp.Diff(Cost{FileSyncs: 1, DirSyncs: 1, Reads: 1}, prepare, later), "preparing")
		assert.NoError(t, problems(PrepareLimit.rows("prepare", 1, prepare)...))

		again := n.cost(func() error { return n.plugin.Prepare(ctx, one) }, getClaim(one))
		assert.Empty(t, cmp.Diff(Cost{Reads: 1}, again, later), "preparing again")

		unprepare := n.cost(func() error { return n.plugin.Unprepare(ctx, one) })
		assert.Empty(t, cmp.Diff(Cost{DirSyncs: 1}, unprepare, later), "unpreparing")
		assert.NoError(t, problems(UnprepareLimit.rows("unprepare", 1, unprepare)...))

		// A removal that was cut short may not be durable yet, so the plugin syncs the directory once more.
		nothing := n.cost(func() error { return n.plugin.Unprepare(ctx, one) })
		assert.Empty(t, cmp.Diff(Cost{DirSyncs: 1}, nothing, later), "unpreparing again")
	}
}

// Other claims, of the same call or prepared before, do not increase the cost of a claim.
func TestPrepare_SeveralClaimsInACall_EachCostsTheSame(t *testing.T) {
	n := newNode(t, wholeOnly)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var claims []Claim
	var admitted []string
	for i := range 8 {
		claims, admitted = append(claims, reference(i)), append(admitted, getClaim(reference(i)))
	}
	last := len(claims) - 1
	together := n.cost(func() error { return n.plugin.Prepare(ctx, claims[:last]...) }, admitted[:last]...)
	together.Later = 0
	assert.Equal(t, Cost{FileSyncs: last, DirSyncs: last, Reads: last}, together)
	one := n.cost(func() error { return n.plugin.Prepare(ctx, claims[last]) }, admitted[last])
	assert.NoError(t, problems(PrepareLimit.rows("prepare", 1, one)...))
	require.NoError(t, n.plugin.Unprepare(ctx, claims...))
}

// all100 returns the claims of a burst and the requests that they may wait for.
func all100() (claims []Claim, admitted []string) {
	for i := range BurstClaims {
		one := adminClaim(i)
		if i < 8 {
			one = reference(i)
		}
		claims, admitted = append(claims, one), append(admitted, getClaim(one))
	}
	return claims, admitted
}

// A hundred calls at once cost a hundred times as much as one call.
func TestPrepare_HundredCallsAtOnce_EachCostsTheSame(t *testing.T) {
	n := newNode(t, wholeOnly)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	claims, admitted := all100()
	prepare := n.cost(func() error {
		_, err := together(claims, func(one Claim) error { return n.plugin.Prepare(ctx, one) })
		return err
	}, admitted...)
	prepare.Later = 0
	assert.Equal(t, Cost{FileSyncs: BurstClaims, DirSyncs: BurstClaims, Reads: BurstClaims}, prepare)
	unprepare := n.cost(func() error {
		_, err := together(claims, func(one Claim) error { return n.plugin.Unprepare(ctx, one) })
		return err
	})
	unprepare.Later = 0
	assert.Equal(t, Cost{DirSyncs: BurstClaims}, unprepare)
	assert.NoError(t, problems(claimLimits.rows(BurstClaims, Costs{Prepare: prepare, Unprepare: unprepare})...))
}

// The file operations for one more claim do not depend on the number of prepared claims.
func TestPrepare_BesideOthers_SameFileOperations(t *testing.T) {
	n := newNode(t, wholeOnly)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	one := func() (prepared, freed Files) {
		n.disk.since()
		require.NoError(t, n.plugin.Prepare(ctx, reference(0)))
		prepared, _ = n.disk.since()
		require.NoError(t, n.plugin.Unprepare(ctx, reference(0)))
		freed, _ = n.disk.since()
		return prepared, freed
	}
	one() // a process reads all records when it locks a GPU for the first time
	prepared, freed := one()
	assert.Equal(t, Files{Opened: 2, Changed: 4, Synced: 2}, prepared)
	assert.NotZero(t, freed.Bytes)
	var others []Claim
	for i := range BurstClaims {
		others = append(others, adminClaim(i))
	}
	require.NoError(t, n.plugin.Prepare(ctx, others...))
	preparedBeside, freedBeside := one()
	assert.Equal(t, prepared, preparedBeside, "preparing")
	assert.Equal(t, freed, freedBeside, "unpreparing")
	require.NoError(t, n.plugin.Unprepare(ctx, others...))
}

// A restart reads each record and changes nothing.
func TestRestart_PreparedClaims_ReadOnceAndUnchanged(t *testing.T) {
	n := newNode(t, wholeOnly)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	claims, _ := all100()
	require.NoError(t, n.plugin.Prepare(ctx, claims...))
	written, _ := n.disk.since()
	assert.NotZero(t, written.Changed)

	restarted := n.open()
	done, byDir := n.disk.since()
	read := byDir["claims"]
	assert.Equal(t, Files{Opened: BurstClaims, Bytes: read.Bytes, Listed: 1}, read, "until it can serve")
	// It also reads the saved layout, first at the start and then before it follows another process, the findings of GPUs, and until when GPUs
	// are released, and lists the installed programs and the saved states of MPS. It syncs the parent directories of these and its own: they
	// may be new.
	assert.Equal(t, Files{Opened: BurstClaims + 4, Bytes: read.Bytes, Listed: 3, Synced: 2}, done)
	held, pending := restarted.Claims.Counts()
	assert.Equal(t, []int{BurstClaims, 0}, []int{held, pending})

	require.NoError(t, restarted.Claims.Recover(ctx))
	_, err := restarted.Claims.Records()
	require.NoError(t, err)
	leaks, err := restarted.Claims.Collector().Collect(ctx, nil, false)
	require.NoError(t, err)
	assert.Empty(t, leaks)
	_, round := n.disk.since()
	whole := Restart{Claims: BurstClaims, Records: read.plus(round["claims"]), Specs: round["cdi"]}
	assert.NoError(t, problems(whole.rows()...))
	assert.Equal(t, []int{readsPerRecord * BurstClaims, readsPerSpec * BurstClaims, restartLists},
		[]int{whole.Records.Opened, whole.Specs.Opened, whole.Records.Listed + whole.Specs.Listed}, "a budget equals the count")
	require.NoError(t, n.plugin.Unprepare(ctx, claims...))
}
