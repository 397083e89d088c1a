package driver

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
)

// TestClaimStatus_Metrics_ConditionAndData: kubectl describe shows what is in force.
func TestClaimStatus_Metrics_ConditionAndData(t *testing.T) {
	t.Parallel()
	for exporter, want := range map[bool]metav1.Condition{
		true: {
			Status: metav1.ConditionTrue, Reason: "Configured", Message: "The options of the claim are recorded for prism-exporter, which is enabled " +
				"on GPU nodes; metric prism_gpu_up says whether it samples the GPU.",
		},
		false: {
			Status: metav1.ConditionFalse, Reason: "ExporterDisabled",
			Message: "No metrics are sampled: prism-exporter does not run on the node (chart value exporter.enabled).",
		},
	} {
		record := done("a")
		record.Results[1].ShareID = ""
		record.Results[0].Metrics = &checkpoint.Metrics{Sets: []string{"Memory"}, Interval: 2 * time.Second}
		for _, d := range reported(t, &gpu.Node{}, func(s ClaimStatus, _ *resourceapi.ResourceClaim) {
			s.Exporter = exporter
			s.Prepared(record)
		}) {
			condition := meta.FindStatusCondition(d.Conditions, kube.ConditionMetricsReady)
			if d.Device != record.Results[0].Device {
				assert.Nil(t, condition)
				assert.NotContains(t, string(d.Data.Raw), "metrics")
				continue
			}
			require.NotNil(t, condition)
			assert.Equal(t, want.Status, condition.Status)
			assert.Equal(t, want.Reason, condition.Reason)
			assert.Equal(t, want.Message, condition.Message, "what the plugin knows, and no more")
			assert.Contains(t, string(d.Data.Raw), `"metrics":{"interval":"2s","sets":["Basic","Memory"]}`)
		}
	}
}

// TestWithMetrics_Sources_OfTheGPU: unset is what the exporter chooses for the GPU, as far as that is known.
func TestWithMetrics_Sources_OfTheGPU(t *testing.T) {
	t.Parallel()
	const hopper, ampere = gpu.UUID("GPU-hopper"), gpu.UUID("GPU-ampere")
	node := &gpu.Node{GPUs: []gpu.GPU{
		{UUID: hopper, Product: gpu.Product{ComputeCapability: "9.0"}}, {UUID: ampere, Product: gpu.Product{ComputeCapability: "8.0"}},
	}}
	for want, r := range map[string]checkpoint.Result{
		`{"a":1,"metrics":{"source":"GPM","sets":["Basic"]}}`:  {GPUUUID: hopper, Metrics: &checkpoint.Metrics{}},
		`{"a":1,"metrics":{"source":"NVML","sets":["Basic"]}}`: {GPUUUID: ampere, Metrics: &checkpoint.Metrics{}},
		`{"a":1,"metrics":{"source":"NVML","sets":["Basic","Power"],"interval":"1m0s"}}`: {
			GPUUUID: hopper, Metrics: &checkpoint.Metrics{Source: "NVML", Sets: []string{"Power", "Basic"}, Interval: time.Minute},
		},
		`{"a":1,"metrics":{"sets":["Basic"]}}`: {GPUUUID: "GPU-gone", Metrics: &checkpoint.Metrics{}},
		`{"a":1}`:                              {GPUUUID: hopper},
	} {
		before := map[string]any{"a": 1}
		raw, err := json.Marshal(withMetrics(before, node, &r))
		require.NoError(t, err)
		assert.JSONEq(t, want, string(raw))
		assert.Len(t, before, 1, "the steps' own")
	}
}
