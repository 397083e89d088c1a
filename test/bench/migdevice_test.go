package bench

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wholeOnly advertises GPUs whole; mixed advertises them whole, for three claims at once, and in every MIG profile.
const (
	wholeOnly = "modes: [whole]"
	mixed     = "modes: [whole, timeslice, mig], timeSlice: {replicas: 3}"
)

// requested returns the claims, and the requests that they may wait for.
func requested(n int, of func(int) Claim) (claims []Claim, admitted []string) {
	for i := range n {
		claims, admitted = append(claims, of(i)), append(admitted, getClaim(of(i)))
	}
	return claims, admitted
}

// both prepares and unprepares a claim, and counts.
func (n *node) both(ctx context.Context, one Claim) Costs {
	return Costs{
		Prepare:   n.cost(func() error { return n.plugin.Prepare(ctx, one) }, getClaim(one)),
		Unprepare: n.cost(func() error { return n.plugin.Unprepare(ctx, one) }),
	}
}

// later is not part of a cost: it may come before the test receives the answer.
var later = cmpopts.IgnoreFields(Cost{}, "Later")

// The costs on a GPU without others, and of the last device that fits.
func TestPrepare_MIGDevice_CostIsExact(t *testing.T) {
	n := newNode(t, mixed)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	first := n.both(ctx, migClaim(0))
	alone := n.both(ctx, migClaim(0))
	made, removed := Cost{FileSyncs: 2, DirSyncs: 2, Reads: 1}, Cost{FileSyncs: 1, DirSyncs: 2}
	same := cmp.Options{later, cmpopts.IgnoreFields(Cost{}, "NVML")}
	assert.Empty(t, cmp.Diff(Costs{Prepare: made, Unprepare: removed}, alone, same))
	assert.NoError(t, problems(MIGLimits.rows(1, alone)...))
	inspection := n.cost(func() error { return n.inspect(ctx) })
	assert.Equal(t, alone.Prepare.NVML+1+inspection.NVML, first.Prepare.NVML, "MIG mode is turned on once, and all GPUs are inspected then")
	assert.Equal(t, alone.Unprepare.NVML, first.Unprepare.NVML, "and left on")

	require.NoError(t, n.plugin.Prepare(ctx, migClaim(0)))
	again := n.cost(func() error { return n.plugin.Prepare(ctx, migClaim(0)) }, getClaim(migClaim(0)))
	assert.Empty(t, cmp.Diff(Cost{Reads: 1}, again, same), "preparing again checks whether the device still exists")
	require.NoError(t, n.plugin.Unprepare(ctx, migClaim(0)))

	others, _ := requested(perGPU-1, migClaim)
	require.NoError(t, n.plugin.Prepare(ctx, others...))
	last := n.both(ctx, migClaim(perGPU-1))
	assert.Empty(t, cmp.Diff(Costs{Prepare: made, Unprepare: removed}, last, same))
	assert.NoError(t, problems(LastLimits.rows(1, last)...))
	t.Logf("NVML calls: %d and %d without others, %d and %d beside %d", alone.Prepare.NVML, alone.Unprepare.NVML,
		last.Prepare.NVML, last.Unprepare.NVML, len(others))
	require.NoError(t, n.plugin.Unprepare(ctx, others...))
}

// The driver is called only if the GPU could be partitioned, to find out whether it is.
func TestPrepare_WholeGPUThatCouldBePartitioned_OneModeRead(t *testing.T) {
	n := newNode(t, mixed)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	want := Costs{Prepare: Cost{FileSyncs: 1, DirSyncs: 1, NVML: 1, Reads: 1}, Unprepare: Cost{DirSyncs: 1}}
	got := n.both(ctx, reference(0))
	assert.Empty(t, cmp.Diff(want, got, later))
	assert.NoError(t, problems(WholeLimits.rows(1, got)...))
	assert.Error(t, problems(claimLimits.rows(1, got)...), "the driver is not called for a GPU that is only advertised whole")
}

// A share costs the same as a whole GPU, also beside other shares of its GPU.
func TestPrepare_Share_CostsAWholeGPU(t *testing.T) {
	n := newNode(t, mixed)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	want := n.both(ctx, reference(0))
	got := n.both(ctx, shareClaim(0))
	assert.Empty(t, cmp.Diff(want, got, later))
	assert.NoError(t, problems(WholeLimits.rows(1, got)...))

	// The claims cycle through eight GPUs: these are two more shares of the first one.
	others := []Claim{shareClaim(8), shareClaim(16)}
	require.NoError(t, n.plugin.Prepare(ctx, others...))
	assert.Empty(t, cmp.Diff(want, n.both(ctx, shareClaim(0)), later))
	require.NoError(t, n.plugin.Unprepare(ctx, others...))
}

// Many MIG devices at once cost as much as each alone, in any order.
func TestPrepare_AllMIGDevicesAtOnce_EachCostsTheSame(t *testing.T) {
	n := newNode(t, mixed)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	const all = 8 * perGPU
	for first := 0; first < all; first += perGPU { // without the cost of turning on MIG mode
		n.both(ctx, migClaim(first))
	}
	claims, admitted := requested(all, migClaim)
	costs := Costs{
		Prepare: n.cost(func() error {
			_, err := together(claims, func(one Claim) error { return n.plugin.Prepare(ctx, one) })
			return err
		}, admitted...),
		Unprepare: n.cost(func() error {
			_, err := together(claims, func(one Claim) error { return n.plugin.Unprepare(ctx, one) })
			return err
		}),
	}
	assert.Equal(t, 2*all, costs.Prepare.Durable())
	assert.Equal(t, 2*all, costs.Unprepare.Durable())
	assert.NoError(t, problems(LastLimits.rows(all, costs)...))
}
