package kube_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// TestStatuses_ApplyInvalid_Updated: the server refuses to apply to a claim whose opaque parameters it would encode in another order. The
// update contains the whole claim, so entries of others stay.
func TestStatuses_ApplyInvalid_Updated(t *testing.T) {
	t.Parallel()
	claim := claimWith(result(driverName, "gpu-a"), result(otherDriver, "eth-0"))
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{
		{Driver: otherDriver, Pool: nodeName, Device: "eth-0"},
		{Driver: driverName, Pool: nodeName, Device: "gpu-a", Conditions: []metav1.Condition{{Type: "Checked", Status: metav1.ConditionTrue}, {Type: "Profiling"}}},
	}
	w := newWriter(t, claim, func(a clienttesting.Action) error {
		if a.GetVerb() != "patch" {
			return nil
		}
		return apierrors.NewInvalid(resourceapi.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), claimRef.Name, field.ErrorList{
			field.Invalid(field.NewPath("status", "allocation"), nil, "field cannot be modified once set"),
		})
	})
	w.run(t)
	w.Failed(claimRef, []kube.Device{device("gpu-a")}, "refused")
	w.drain(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	w.drain(t)
	assert.Len(t, w.entries(t, otherDriver), 1)
	entries := w.entries(t, driverName)
	require.Len(t, entries, 1)
	e := entries["gpu-a"]
	assert.Equal(t, metav1.ConditionTrue, ready(t, e).Status)
	assert.Contains(t, string(e.Data.Raw), identity.UUID)
	types := []string{}
	for _, c := range e.Conditions {
		types = append(types, c.Type)
	}
	assert.ElementsMatch(t, []string{"Checked", kube.ConditionReady}, types)
	assert.Equal(t, int64(2), w.Stats().Written)
}

// TestStatuses_ApplyFails_NotUpdated: other errors are retried without an update.
func TestStatuses_ApplyFails_NotUpdated(t *testing.T) {
	t.Parallel()
	refused := false
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), func(a clienttesting.Action) error {
		if a.GetVerb() == "patch" && !refused {
			refused = true
			return errors.New("no connection")
		}
		assert.NotEqual(t, "update", a.GetVerb())
		return nil
	})
	w.run(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	w.drain(t)
	assert.True(t, refused)
}
