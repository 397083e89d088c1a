package bench

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a claim costs, exactly. Requests that come after the answer have no place in it, and may come before it is seen.
func TestBudgetOfOneClaim(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	later := cmpopts.IgnoreFields(Cost{}, "Later")
	for i := range 3 {
		one := reference(i)
		prepare := n.cost(func() error { return n.plugin.Prepare(ctx, one) }, getClaim(one))
		assert.Empty(t, cmp.Diff(Cost{FileSyncs: 1, DirSyncs: 1, Reads: 1}, prepare, later), "preparing")
		assert.Empty(t, PrepareLimit.Exceeded(prepare))

		again := n.cost(func() error { return n.plugin.Prepare(ctx, one) }, getClaim(one))
		assert.Empty(t, cmp.Diff(Cost{Reads: 1}, again, later), "preparing what is prepared")

		unprepare := n.cost(func() error { return n.plugin.Unprepare(ctx, one) })
		assert.Empty(t, cmp.Diff(Cost{DirSyncs: 1}, unprepare, later), "unpreparing")
		assert.Empty(t, UnprepareLimit.Exceeded(unprepare))

		// A removal that was cut short may not be durable yet, so the directory is synced once more.
		nothing := n.cost(func() error { return n.plugin.Unprepare(ctx, one) })
		assert.Empty(t, cmp.Diff(Cost{DirSyncs: 1}, nothing, later), "unpreparing what is not prepared")
	}
}

// Claims of one call and claims that others hold make a claim no dearer.
func TestBudgetOfManyClaims(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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
	assert.Empty(t, PrepareLimit.Exceeded(one))
	require.NoError(t, n.plugin.Unprepare(ctx, claims...))
}
