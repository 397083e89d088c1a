package claimmetrics

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// TestStatusConditions_Exporter_SaidWhatIsKnown: kubectl describe shows only facts that the plugin knows.
func TestStatusConditions_Exporter_SaidWhatIsKnown(t *testing.T) {
	t.Parallel()
	for exporter, want := range map[bool]kube.Condition{
		true: {
			Type: "GPUMetricsReady", True: true, Reason: "Configured", Message: "The options of the claim are recorded for prism-exporter, which is enabled " +
				"on GPU nodes; metric prism_gpu_up says whether it samples the GPU.",
		},
		false: {
			Type: "GPUMetricsReady", Reason: "ExporterDisabled",
			Message: "No metrics are sampled: prism-exporter does not run on the node (chart value exporter.enabled).",
		},
	} {
		assert.Equal(t, []kube.Condition{want}, Extension{Exporter: exporter}.StatusConditions(exposing(uid)))
		assert.Contains(t, Extension{}.ConditionTypes(), want.Type)
	}
}

// TestStatusData_Sources_OfTheGPU: an unset source becomes the exporter's choice for the GPU, as far as it is known.
func TestStatusData_Sources_OfTheGPU(t *testing.T) {
	t.Parallel()
	const hopper, ampere = gpu.UUID("GPU-hopper"), gpu.UUID("GPU-ampere")
	node := &gpu.Node{GPUs: []gpu.GPU{
		{UUID: hopper, Product: gpu.Product{ComputeCapability: "9.0"}}, {UUID: ampere, Product: gpu.Product{ComputeCapability: "8.0"}},
	}}
	for want, r := range map[string]checkpoint.Result{
		`{"metrics":{"source":"GPM","sets":["Basic"]}}`:  {GPUUUID: hopper, Extensions: with(`{}`)},
		`{"metrics":{"source":"NVML","sets":["Basic"]}}`: {GPUUUID: ampere, Extensions: with(`{}`)},
		`{"metrics":{"source":"NVML","sets":["Basic","Power"],"interval":"1m0s"}}`: {
			GPUUUID: hopper, Extensions: with(`{"source":"NVML","sets":["Power","Basic"],"interval":60000000000}`),
		},
		`{"metrics":{"sets":["Basic"]}}`: {GPUUUID: "GPU-gone", Extensions: with(`{}`)},
		`null`:                           {GPUUUID: hopper},
	} {
		raw, err := json.Marshal(Extension{}.StatusData(node, nil, &r))
		require.NoError(t, err)
		assert.JSONEq(t, want, string(raw))
	}
}
