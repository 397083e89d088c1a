package kube_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

var (
	claimRef = kube.ClaimRef{Namespace: "team", Name: "train", UID: "claim-uid"}
	identity = kube.Identity{
		Type: "gpu", UUID: "GPU-3f2a9c1b-0000-0000-0000-000000000000", Index: new(3), Minor: new(4),
		PCIBusID: "0000:3b:00.0", ProductName: "NVIDIA H100 80GB HBM3", DriverVersion: "580.95.05",
	}
	day    = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	claims = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
)

const otherDriver = "nic.example.com"

func result(driver, device string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: driver, Pool: nodeName, Device: device}
}

// claimWith is a claim with these allocation results.
func claimWith(results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: claimRef.Namespace, Name: claimRef.Name, UID: claimRef.UID},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: results},
		}},
	}
}

func device(name string) kube.Device {
	return kube.Device{Pool: nodeName, Name: name, Identity: &identity}
}

// writer is a status writer with a fake API server and a clock that advances by an hour per reading.
type writer struct {
	*kube.Statuses
	server  *fake.Clientset
	patches atomic.Int64
	errors  chan error
}

// newWriter returns a writer that does not run yet. before, if not nil, can refuse requests.
func newWriter(t *testing.T, claim *resourceapi.ResourceClaim, before func(clienttesting.Action) error) *writer {
	t.Helper()
	w := &writer{server: fake.NewClientset(claim), errors: make(chan error, 64)}
	w.server.PrependReactor("*", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if before != nil {
			if err := before(a); err != nil {
				return true, nil, err
			}
		}
		if a.GetVerb() == "patch" {
			w.patches.Add(1)
		}
		return false, nil, nil
	})
	var hours atomic.Int64
	w.Statuses = kube.NewStatuses(kube.StatusesOptions{
		Client:     w.server,
		DriverName: driverName,
		Conditions: []string{"Profiling"},
		Now:        func() time.Time { return day.Add(time.Duration(hours.Add(1)) * time.Hour) },
		OnError:    func(_ kube.ClaimRef, err error) { w.errors <- err },
	})
	return w
}

func (w *writer) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
}

// drain waits until no report is pending.
func (w *writer) drain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	require.NoError(t, w.Drain(ctx))
}

// entries returns the entries of a driver in the claim's status, by device.
func (w *writer) entries(t *testing.T, driver string) map[string]resourceapi.AllocatedDeviceStatus {
	t.Helper()
	claim, err := w.server.ResourceV1().ResourceClaims(claimRef.Namespace).Get(t.Context(), claimRef.Name, metav1.GetOptions{})
	require.NoError(t, err)
	out := map[string]resourceapi.AllocatedDeviceStatus{}
	for _, e := range claim.Status.Devices {
		if e.Driver == driver {
			out[e.Device] = e
		}
	}
	return out
}

func ready(t *testing.T, e resourceapi.AllocatedDeviceStatus) metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(e.Conditions, kube.ConditionReady)
	require.NotNil(t, c)
	return *c
}

func TestStatuses_Ready_Written(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a"), result(otherDriver, "eth-0")), nil)
	w.run(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	w.drain(t)

	entries := w.entries(t, driverName)
	require.Len(t, entries, 1)
	e := entries["gpu-a"]
	assert.Equal(t, nodeName, e.Pool)
	assert.Nil(t, e.ShareID)
	assert.JSONEq(t, `{"schemaVersion":1,"type":"gpu","uuid":"GPU-3f2a9c1b-0000-0000-0000-000000000000","index":3,"minor":4,
		"pciBusID":"0000:3b:00.0","productName":"NVIDIA H100 80GB HBM3","driverVersion":"580.95.05"}`, string(e.Data.Raw))
	c := ready(t, e)
	assert.Equal(t, metav1.ConditionTrue, c.Status)
	assert.Equal(t, kube.ReasonPrepared, c.Reason)
	assert.True(t, c.LastTransitionTime.Time.Equal(day.Add(time.Hour)))
	assert.Empty(t, w.entries(t, otherDriver))
	assert.Equal(t, kube.StatusesStats{Written: 1}, w.Stats())
}

func TestStatuses_EntriesOfOtherDrivers_Kept(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a"), result(driverName, "gpu-b"), result(otherDriver, "eth-0")), nil)
	theirs := resourceapply.ResourceClaim(claimRef.Name, claimRef.Namespace).WithStatus(resourceapply.ResourceClaimStatus().
		WithDevices(resourceapply.AllocatedDeviceStatus().WithDriver(otherDriver).WithPool(nodeName).WithDevice("eth-0").
			WithNetworkData(resourceapply.NetworkDeviceData().WithIPs("10.0.0.1/24"))))
	_, err := w.server.ResourceV1().ResourceClaims(claimRef.Namespace).ApplyStatus(t.Context(), theirs, metav1.ApplyOptions{FieldManager: otherDriver})
	require.NoError(t, err)

	w.run(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a"), device("gpu-b")})
	w.drain(t)
	w.Failed(claimRef, nil, "GPU gpu-a is lost.")
	w.drain(t)
	assert.Len(t, w.entries(t, driverName), 2)
	their := w.entries(t, otherDriver)
	require.Len(t, their, 1)
	assert.Equal(t, []string{"10.0.0.1/24"}, their["eth-0"].NetworkData.IPs)
	assert.Empty(t, their["eth-0"].Conditions)
}

// Another driver can have a device of the same name in a pool of the same name.
func TestStatuses_SameNameInOtherDriver_Separate(t *testing.T) {
	t.Parallel()
	claim := claimWith(result(otherDriver, "gpu-a"), result(driverName, "gpu-a"))
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: otherDriver, Pool: nodeName, Device: "gpu-a",
		Conditions: []metav1.Condition{{Type: kube.ConditionReady, Status: metav1.ConditionFalse, Reason: kube.ReasonPrepareFailed, Message: "no"}},
	}}
	w := newWriter(t, claim, nil)
	w.run(t)
	w.Failed(claimRef, nil, "no")
	w.drain(t)
	assert.Equal(t, kube.StatusesStats{Written: 1}, w.Stats())
	assert.Len(t, w.entries(t, driverName), 1)
	assert.Len(t, w.entries(t, otherDriver), 1)
}

// Entries of this driver that another client changed are corrected.
func TestStatuses_EntryChangedByOtherManager_Overwritten(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), nil)
	theirs := resourceapply.ResourceClaim(claimRef.Name, claimRef.Namespace).WithStatus(resourceapply.ResourceClaimStatus().
		WithDevices(resourceapply.AllocatedDeviceStatus().WithDriver(driverName).WithPool(nodeName).WithDevice("gpu-a").
			WithConditions(metaapply.Condition().WithType(kube.ConditionReady).WithStatus(metav1.ConditionTrue).
				WithReason("Guessed").WithMessage("").WithLastTransitionTime(metav1.NewTime(day)))))
	_, err := w.server.ResourceV1().ResourceClaims(claimRef.Namespace).ApplyStatus(t.Context(), theirs, metav1.ApplyOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
	w.run(t)
	w.Failed(claimRef, nil, "GPU is lost.")
	w.drain(t)
	assert.Equal(t, kube.ReasonPrepareFailed, ready(t, w.entries(t, driverName)["gpu-a"]).Reason)
	assert.Equal(t, kube.StatusesStats{Written: 1}, w.Stats())
}

func TestStatuses_Reports_TransitionTimeOnlyWithStatus(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), nil)
	w.run(t)
	transition := func() time.Time {
		w.drain(t)
		return ready(t, w.entries(t, driverName)["gpu-a"]).LastTransitionTime.UTC()
	}
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	first := transition()
	patches := w.patches.Load()

	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	assert.Equal(t, first, transition())
	assert.Equal(t, patches, w.patches.Load(), "an unchanged status is not written again")

	changed := identity
	changed.Index = new(2)
	w.Ready(claimRef, []kube.Device{{Pool: nodeName, Name: "gpu-a", Identity: &changed}})
	assert.Equal(t, first, transition(), "other data, but no transition")
	assert.Contains(t, string(w.entries(t, driverName)["gpu-a"].Data.Raw), `"index":2`)

	w.Failed(claimRef, []kube.Device{device("gpu-a")}, "GPU is lost.")
	lost := transition()
	assert.True(t, lost.After(first))
	w.Failed(claimRef, []kube.Device{device("gpu-a")}, "GPU is still lost.")
	assert.Equal(t, lost, transition())
	c := ready(t, w.entries(t, driverName)["gpu-a"])
	assert.Equal(t, metav1.ConditionFalse, c.Status)
	assert.Equal(t, kube.ReasonPrepareFailed, c.Reason)
	assert.Equal(t, "GPU is still lost.", c.Message)

	w.Failed(claimRef, nil, "GPU is lost for ever.")
	assert.Equal(t, lost, transition())
	e := w.entries(t, driverName)["gpu-a"]
	assert.Equal(t, "GPU is lost for ever.", ready(t, e).Message)
	assert.Contains(t, string(e.Data.Raw), identity.UUID, "the data is kept")

	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	assert.True(t, transition().After(lost))
	assert.Equal(t, kube.StatusesStats{Written: 6, Unchanged: 1}, w.Stats())
}

func TestStatuses_Shares_OneEntryPerShareID(t *testing.T) {
	t.Parallel()
	one, two := types.UID("11111111-1111-1111-1111-111111111111"), types.UID("22222222-2222-2222-2222-222222222222")
	first, second := result(driverName, "gpu-a-mps"), result(driverName, "gpu-a-mps")
	first.ShareID, second.ShareID = &one, &two
	w := newWriter(t, claimWith(first, second), nil)
	w.run(t)
	w.Ready(claimRef, []kube.Device{
		{Pool: nodeName, Name: "gpu-a-mps", ShareID: one},
		{Pool: nodeName, Name: "gpu-a-mps", ShareID: two},
	})
	w.drain(t)
	claim, err := w.server.ResourceV1().ResourceClaims(claimRef.Namespace).Get(t.Context(), claimRef.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, claim.Status.Devices, 2)
	assert.ElementsMatch(t, []string{string(one), string(two)}, []string{*claim.Status.Devices[0].ShareID, *claim.Status.Devices[1].ShareID})
	w.Ready(claimRef, []kube.Device{{Pool: nodeName, Name: "gpu-a-mps", ShareID: one}, {Pool: nodeName, Name: "gpu-a-mps", ShareID: two}})
	w.drain(t)
	assert.Equal(t, kube.StatusesStats{Written: 1, Unchanged: 1}, w.Stats())
}

// A report without a matching allocation is dropped without an error.
func TestStatuses_NoMatchingAllocation_Gone(t *testing.T) {
	t.Parallel()
	deallocated := claimWith()
	deallocated.Status.Allocation = nil
	other := claimRef
	other.UID = "an older claim of that name"
	missing := claimRef
	missing.Name = "deleted"
	twice := claimWith(result(driverName, "gpu-a"), result(driverName, "gpu-a"))
	for name, c := range map[string]struct {
		claim   *resourceapi.ResourceClaim
		ref     kube.ClaimRef
		devices []kube.Device
		want    kube.StatusesStats
	}{
		"deleted":                {claimWith(result(driverName, "gpu-a")), missing, nil, kube.StatusesStats{Gone: 1}},
		"replaced":               {claimWith(result(driverName, "gpu-a")), other, nil, kube.StatusesStats{Gone: 1}},
		"deallocated":            {deallocated, claimRef, nil, kube.StatusesStats{Gone: 1}},
		"other devices":          {claimWith(result(driverName, "gpu-a")), claimRef, []kube.Device{device("gpu-b")}, kube.StatusesStats{Gone: 1}},
		"other driver":           {claimWith(result(otherDriver, "gpu-a")), claimRef, nil, kube.StatusesStats{Gone: 1}},
		"for two requests":       {twice, claimRef, []kube.Device{device("gpu-a"), device("gpu-a")}, kube.StatusesStats{Written: 1}},
		"report without devices": {claimWith(result(driverName, "gpu-a")), claimRef, nil, kube.StatusesStats{Written: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWriter(t, c.claim, nil)
			w.run(t)
			w.Failed(c.ref, c.devices, "no")
			w.drain(t)
			assert.Equal(t, c.want, w.Stats())
			assert.Equal(t, c.want.Written, w.patches.Load())
		})
	}
}

func TestStatuses_ClaimDeletedDuringWrite_Gone(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), func(a clienttesting.Action) error {
		if a.GetVerb() == "patch" {
			return apierrors.NewNotFound(claims.GroupResource(), claimRef.Name)
		}
		return nil
	})
	w.run(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	w.drain(t)
	assert.Equal(t, kube.StatusesStats{Gone: 1}, w.Stats())
}
