package kube_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/test/fakes"
)

// TestStatuses_Condition_WrittenAndRemoved: the condition is written beside Ready, once, and is removed when it is not reported any more.
func TestStatuses_Condition_WrittenAndRemoved(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(claimWith(result("gpu.prism.dev", "gpu-1")))
	statuses := kube.NewStatuses(kube.StatusesOptions{Client: client, DriverName: "gpu.prism.dev", Conditions: []string{"Other", "GPUMetricsReady"}})
	defer fakes.Run(t, statuses.Run)()
	report := func(metrics *kube.Condition) resourceapi.AllocatedDeviceStatus {
		d := device("gpu-1")
		if metrics != nil {
			d.Conditions = []kube.Condition{*metrics}
		}
		statuses.Ready(claimRef, []kube.Device{d})
		require.NoError(t, statuses.Drain(t.Context()))
		claim, err := client.ResourceV1().ResourceClaims(claimRef.Namespace).Get(t.Context(), claimRef.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Len(t, claim.Status.Devices, 1)
		return claim.Status.Devices[0]
	}
	off := kube.Condition{Type: "GPUMetricsReady", Reason: "ExporterDisabled", Message: "No exporter."}
	on := kube.Condition{Type: "GPUMetricsReady", True: true, Reason: "Configured", Message: "All is set."}
	for _, step := range []struct {
		metrics   *kube.Condition
		status    metav1.ConditionStatus
		written   int64
		unchanged int64
	}{
		{&off, metav1.ConditionFalse, 1, 0}, {&off, metav1.ConditionFalse, 1, 1}, {&on, metav1.ConditionTrue, 2, 1}, {nil, "", 3, 1}, {nil, "", 3, 2},
	} {
		entry := report(step.metrics)
		assert.True(t, meta.IsStatusConditionTrue(entry.Conditions, kube.ConditionReady))
		condition := meta.FindStatusCondition(entry.Conditions, "GPUMetricsReady")
		if step.metrics == nil {
			assert.Nil(t, condition)
		} else if assert.NotNil(t, condition) {
			assert.Equal(t, step.status, condition.Status)
			assert.Equal(t, step.metrics.Reason, condition.Reason)
			assert.Equal(t, step.metrics.Message, condition.Message)
		}
		stats := statuses.Stats()
		assert.Equal(t, []int64{step.written, step.unchanged}, []int64{stats.Written, stats.Unchanged})
	}
}
