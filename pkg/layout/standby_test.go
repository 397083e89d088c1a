package driver

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
)

// refused is how a claim for a device of the first GPU is refused; nil: it is not.
func (d *desk) refused(t *testing.T, pool, device string) *claim.Refusal {
	t.Helper()
	source := claim.Source{Driver: "gpu.prism.dev", NodeName: "n0", Offered: d.Now, Standby: d.Standby}
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

// TestStandby_LayoutSavedByTheLeader_IsFollowed: in a rolling update the kubelet asks the new process while the old one still leads.
func TestStandby_LayoutSavedByTheLeader_IsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := LayoutFile{Disk: disk.OS{}, Dir: t.TempDir()}
		require.NoError(t, file.Save(Saved{GPUs: gpu.Layout{firstUUID: {Whole: true}}}))
		d := newDesk(t, onlySlices)
		d.ports.Saved = file
		d.Offering = NewOffering(d.ports)
		require.True(t, d.Load(t.Context()))
		require.Equal(t, []string{"n0", first}, d.offered(t))

		refusal := d.refused(t, ownPool, big)
		require.NotNil(t, refusal, "the leader has not advertised it yet")
		assert.True(t, refusal.Transient)
		assert.ErrorContains(t, refusal, "wait until the update of the plugin on this node is complete")
		require.NoError(t, file.Save(Saved{GPUs: gpu.Layout{firstUUID: {MIG: []string{"1g.10gb", "3g.40gb"}}}}))
		d.Probe(t.Context())
		assert.Nil(t, d.refused(t, ownPool, big), "the leader has advertised it since")
		refusal = d.refused(t, "n0", first)
		require.NotNil(t, refusal)
		assert.True(t, refusal.Transient, "the leader may advertise it again by now")
		assert.True(t, d.followed(), "what is described of devices is another thing too")
		assert.False(t, d.followed())

		d.Lead(true)
		refusal = d.refused(t, "n0", first)
		require.NotNil(t, refusal)
		assert.False(t, refusal.Transient, "nothing else advertises anything")
		require.NoError(t, file.Save(Saved{GPUs: gpu.Layout{firstUUID: {Whole: true}}}))
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t), "the process that leads knows best")
	})
}

// TestStandby_LayoutThatCannotBeRead_KeepsTheOneBefore and no Event tells of it: the process that leads has its own.
func TestStandby_LayoutThatCannotBeRead_KeepsTheOneBefore(t *testing.T) {
	t.Parallel()
	d := newDesk(t, onlySlices)
	d.saved.layout = gpu.Layout{firstUUID: {Whole: true}}
	d.restart(t)
	require.True(t, d.Load(t.Context()))
	d.saved.err = errBad
	assert.Equal(t, []string{"n0", first}, d.offered(t))
	assert.Empty(t, d.events())
}

// TestStandby_NewLayout_IsReportedByRun, so that what is known of published devices is renewed.
func TestStandby_NewLayout_IsReportedByRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, onlyBig)
		d.saved.layout = gpu.Layout{firstUUID: {Whole: true}}
		d.restart(t)
		require.True(t, d.Load(t.Context()))
		changes := 0
		stop := inBackground(t, func(ctx context.Context) error { return d.Run(ctx, func() { changes++ }) })
		defer stop()
		after(time.Minute)
		assert.Zero(t, changes)
		d.saved.layout = gpu.Layout{firstUUID: {MIG: []string{"3g.40gb"}}}
		after(rereadMax)
		assert.Equal(t, []string{ownPool, big}, d.offered(t))
		assert.Positive(t, changes)
	})
}
