package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// countedTool replaces the driver's tool and always succeeds.
type countedTool struct{ runs atomic.Int64 }

// SetTimeslice counts an executed program.
func (c *countedTool) SetTimeslice(context.Context, gpu.UUID, gpu.Interval) error {
	c.runs.Add(1)
	return nil
}

// longInterval requests a time-slice interval.
var longInterval = resourceapi.DeviceAllocationConfiguration{
	Source: resourceapi.AllocationConfigSourceClaim,
	DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
		Driver: testDriver, Parameters: runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":{"timeSlicing":{"interval":"Long"}}}`,
		)},
	}},
}

// intervalClaim returns the claim for one GPU with a time-slice interval.
func intervalClaim(i int) Claim {
	return Claim{Namespace: "team", Name: fmt.Sprintf("interval-%d", i), UID: fmt.Sprintf("uid-interval-%d", i)}
}

// An interval costs one program after one record, and to restore it one program after one mark. Its other data is not synced.
func TestPrepare_TimeSliceInterval_CostIsExact(t *testing.T) {
	n := newNode(t, wholeOnly)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	want := Costs{
		Prepare:   Cost{FileSyncs: 2, DirSyncs: 2, Programs: 1, Reads: 1},
		Unprepare: Cost{FileSyncs: 1, DirSyncs: 2, Programs: 1},
	}
	assert.Empty(t, cmp.Diff(want, n.both(ctx, intervalClaim(0)), later))
	assert.NoError(t, problems(IntervalLimits.rows(1, want)...))

	require.NoError(t, n.plugin.Prepare(ctx, intervalClaim(0)))
	again := n.cost(func() error { return n.plugin.Prepare(ctx, intervalClaim(0)) }, getClaim(intervalClaim(0)))
	assert.Empty(t, cmp.Diff(Cost{Reads: 1}, again, later), "the plugin does not set the interval of a prepared claim again")
	require.NoError(t, n.plugin.Unprepare(ctx, intervalClaim(0)))

	without := n.both(ctx, reference(0))
	assert.Zero(t, without.Prepare.Programs+without.Unprepare.Programs)
}

// A change of the node's configuration for the intervals of 8 GPUs runs 8 programs, and nothing from then on.
func TestIntervals_ConfigurationChanges_OneProgramPerGPU(t *testing.T) {
	n := newNode(t, mixed)
	process := n.open()
	keep := func(interval gpu.Interval) Cost {
		n.configure(mixed[:len(mixed)-1] + ", interval: " + string(interval) + "}")
		ctx, stop := context.WithTimeout(t.Context(), limit)
		defer stop()
		process.Layout().Controller.Reload()
		applied := func() {
			wanted, err := process.Layout().Intervals()
			if err == nil && wanted[n.hardware.GPUs[0].UUID] == interval {
				stop()
			}
		}
		require.NoError(t, process.Layout().Controller.Run(ctx, applied))
		require.ErrorIs(t, ctx.Err(), context.Canceled, "the configuration was read")
		return n.cost(func() error {
			assert.False(t, process.Intervals.Reconcile(t.Context()))
			assert.Zero(t, process.Intervals.Failing())
			return nil
		})
	}
	assert.Equal(t, Cost{}, keep(gpu.IntervalDefault), "a driver that was just loaded")
	assert.Equal(t, Cost{Programs: 8}, keep(gpu.IntervalLong))
	assert.Equal(t, Cost{}, keep(gpu.IntervalLong))
	assert.Equal(t, Cost{Programs: 8}, keep(gpu.IntervalDefault))
}
