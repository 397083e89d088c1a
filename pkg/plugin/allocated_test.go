package plugin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAllocatedAt_TimestampNotStored_WhenItWasWritten(t *testing.T) {
	t.Parallel()
	at := func(minute int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)}
	}
	fields := func(raw string) *metav1.FieldsV1 { return metav1.NewFieldsV1(raw) }
	managed := []metav1.ManagedFieldsEntry{
		{Time: at(1), Subresource: "status", FieldsV1: fields(`{"f:status":{"f:allocation":{"f:devices":{}},"f:reservedFor":{}}}`)},
		{Time: at(2), Subresource: "status", FieldsV1: fields(`{"f:status":{"f:devices":{}}}`)},
		{FieldsV1: fields(`{"f:status":{"f:allocation":{}}}`)},
		{Time: at(3)},
	}
	for name, c := range map[string]struct {
		stored  *metav1.Time
		managed []metav1.ManagedFieldsEntry
		want    *metav1.Time
	}{
		"stored":           {at(5), managed, at(5)},
		"not stored":       {nil, managed, at(1)},
		"nothing is known": {nil, nil, at(0)},
	} {
		rc := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(0), ManagedFields: c.managed}}
		rc.Status.Allocation = &resourceapi.AllocationResult{AllocationTimestamp: c.stored}
		assert.Equal(t, c.want.Time, allocatedAt(rc), name)
	}
}

// TestPrepare_DeviceGoneWhileHeldAtPermit_RetriedForTenMinutes: the layout changed between the choice of the scheduler and the binding.
func TestPrepare_DeviceGoneWhileHeldAtPermit_RetriedForTenMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		p, rc := n.build(t), n.claim(t, "a", 0)
		p.Layout().Lead()
		rc.Status.Allocation.Devices.Results[0].Device += "-mig-19-0"
		rc.Status.Allocation.Devices.Config = nil
		rc.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: p.Machine.adapters.Now().Add(time.Second - permitTime)}
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		err := prepared(ctx, p, rc)
		require.ErrorContains(t, err, "does not advertise it now")
		require.ErrorContains(t, err, "if this stays for 10 minutes after the allocation, delete the pod so that it is scheduled again (will be retried)")
		time.Sleep(time.Second)
		err = prepared(t.Context(), p, rc)
		require.ErrorContains(t, err, "does not advertise it now")
		require.ErrorContains(t, err, "; delete the pod so that it is scheduled again (not retryable)")
	})
}
