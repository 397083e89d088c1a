package kube_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/test/fakes"
)

// TestStatuses_FalseCondition_WrittenAndRemoved beside Ready, each once.
func TestStatuses_FalseCondition_WrittenAndRemoved(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(claimWith(result("gpu.prism.dev", "gpu-1")))
	statuses := kube.NewStatuses(kube.StatusesOptions{Client: client, DriverName: "gpu.prism.dev", Conditions: []string{"Injected"}})
	defer fakes.Run(t, statuses.Run)()
	off := &kube.Condition{Type: "Injected", Reason: "CDINotApplied", Message: "CDI is off."}
	for written, injected := range []*kube.Condition{off, off, nil, nil} {
		d := device("gpu-1")
		if injected != nil {
			d.Conditions = []kube.Condition{*injected}
		}
		statuses.Ready(claimRef, []kube.Device{d})
		require.NoError(t, statuses.Drain(t.Context()))
		claim, err := client.ResourceV1().ResourceClaims(claimRef.Namespace).Get(t.Context(), claimRef.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Len(t, claim.Status.Devices, 1)
		conditions := claim.Status.Devices[0].Conditions
		assert.True(t, meta.IsStatusConditionTrue(conditions, kube.ConditionReady))
		condition := meta.FindStatusCondition(conditions, "Injected")
		assert.Equal(t, injected != nil, condition != nil && condition.Status == metav1.ConditionFalse && condition.Message == off.Message)
		assert.Equal(t, int64(written/2+1), statuses.Stats().Written)
	}
}
