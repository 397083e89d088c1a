package layout

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/fakes"
)

// refused is the error of a claim for a device of the first GPU; nil if it is not refused.
func (d *fixture) refused(t *testing.T, pool, device string) *claim.Refusal {
	t.Helper()
	source := claim.Source{Driver: "gpu.prism.dev", NodeName: "n0", Advertised: func() (*gpu.Node, gpu.Layout, error) {
		s := d.Snapshot()
		return s.Node, s.Layout, s.Err
	}, Standby: func() bool { return d.Snapshot().Standby }}
	rc := &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "r", Driver: "gpu.prism.dev", Pool: pool, Device: device},
		}},
	}}}
	_, err := source.Resolve(rc)
	refusal, _ := errors.AsType[*claim.Refusal](err)
	require.Equal(t, err != nil, refusal != nil)
	return refusal
}

// TestStandby_LayoutSavedByTheLeader_IsFollowed: in a rolling update the kubelet calls the new process while the old one still leads.
func TestStandby_LayoutSavedByTheLeader_IsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := File{Disk: disk.OS{}, Dir: t.TempDir()}
		require.NoError(t, file.Save(Saved{GPUs: gpu.Layout{firstUUID: {Whole: true}}}))
		d := newFixture(t, onlyMIG)
		d.options.Store = file
		d.Controller = New(*d.options)
		require.True(t, d.load(t))
		require.Equal(t, []string{"n0", first}, d.advertised(t))

		refusal := d.refused(t, ownPool, big)
		require.NotNil(t, refusal, "the leader has not advertised it yet")
		assert.True(t, refusal.Transient)
		assert.ErrorContains(t, refusal, "wait until the update of the plugin on this node is complete")
		require.NoError(t, file.Save(Saved{GPUs: gpu.Layout{firstUUID: {MIG: []string{"1g.10gb", "3g.40gb"}}}}))
		stop := fakes.Run(t, func(ctx context.Context) error { return d.Run(ctx, func() {}) })
		defer stop()
		after(2 * standbyInterval)
		assert.Nil(t, d.refused(t, ownPool, big), "the leader has advertised it since, and the claim is tried again for longer")
		refusal = d.refused(t, "n0", first)
		require.NotNil(t, refusal)
		assert.True(t, refusal.Transient, "the leader may advertise it again by now")

		d.Lead(true)
		refusal = d.refused(t, "n0", first)
		require.NotNil(t, refusal)
		assert.False(t, refusal.Transient, "nothing else advertises anything")
		after(standbyInterval)
		require.NoError(t, file.Save(Saved{GPUs: gpu.Layout{firstUUID: {Whole: true}}}))
		after(2 * standbyInterval)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t), "the process that leads reads no other layout")
	})
}

// TestStandby_LayoutThatCannotBeRead_KeepsTheOneBefore without an Event: the process that leads uses its own layout.
func TestStandby_LayoutThatCannotBeRead_KeepsTheOneBefore(t *testing.T) {
	t.Parallel()
	d := newFixture(t, onlyMIG)
	d.saved.layout = gpu.Layout{firstUUID: {Whole: true}}
	d.restart(t)
	require.True(t, d.load(t))
	d.saved.err = errBad
	assert.Equal(t, []string{"n0", first}, d.advertised(t))
	assert.Empty(t, d.events())
}

// TestStandby_NewLayout_IsReportedByRun, so that the knowledge of published devices is renewed.
func TestStandby_NewLayout_IsReportedByRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, onlyBig)
		d.saved.layout = gpu.Layout{firstUUID: {Whole: true}}
		d.restart(t)
		require.True(t, d.load(t))
		changes := 0
		stop := fakes.Run(t, func(ctx context.Context) error { return d.Run(ctx, func() { changes++ }) })
		defer stop()
		after(time.Minute)
		assert.Zero(t, changes)
		d.saved.layout = gpu.Layout{firstUUID: {MIG: []string{"3g.40gb"}}}
		after(2 * standbyInterval)
		assert.Equal(t, []string{ownPool, big}, d.advertised(t))
		assert.Positive(t, changes)
	})
}
