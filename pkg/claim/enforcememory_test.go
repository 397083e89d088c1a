package claim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// requesting is a share that requested that much memory.
func requesting(memory string) []resourceapi.DeviceRequestAllocationResult {
	share := aShare("r", poolB, timeSliceB, "2")
	share.ConsumedCapacity["memory"] = resource.MustParse(memory)
	return results(share)
}

// TestResolve_EnforceMemoryOnTimeSlicedShare_NeedsLimitAndRequest: without either the container could use all memory of the GPU.
func TestResolve_EnforceMemoryOnTimeSlicedShare_NeedsLimitAndRequest(t *testing.T) {
	t.Parallel()
	const withdraw = "take enforceMemory out of the configuration (not retryable)"
	for name, c := range map[string]struct {
		supported bool
		memory    string
		config    string
		want      string
	}{
		"limited":         {true, "4Gi", enforceConfig, ""},
		"not asked for":   {false, "4Gi", noEnforceConfig, ""},
		"nothing limited": {true, "0", noEnforceConfig, ""},
		"no memory": {true, "0", enforceConfig, "enforceMemory requires a memory request: a time-sliced share " +
			"without one may use all memory of the GPU; set capacity.requests.memory of the request, or " + withdraw},
		"no limits on GPU": {false, "4Gi", enforceConfig, "enforceMemory is not supported for a time-sliced share of GPU " + string(uuidB) +
			" on this node: it requires NVIDIA driver 615 or later, a host with cgroup v2, and the OCI hook of the kubelet plugin; " +
			"use a whole GPU or a MIG device, or " + withdraw},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, layout := timeSliced()
			n.GPUs[1].MemoryLimits = c.supported
			rc := allocated(requesting(c.memory), config(fromClaim, driverName, c.config))
			plan, err := advertising(n, layout).Resolve(rc)
			if c.want != "" {
				require.EqualError(t, err, `request "r", device `+timeSliceB+`: `+c.want)
				return
			}
			require.NoError(t, err)
			assert.Empty(t, plan.Steps, "the limit needs no step")
		})
	}
}

func TestConsumedMemory_Quantities_InBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"4Gi": 4 << 30, "0": 0, "1500Mi": 1500 << 20, "1": 1} {
		got, err := ConsumedMemory(map[string]string{"memory": text, "shares": "1"})
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	got, err := ConsumedMemory(nil)
	require.NoError(t, err)
	assert.Zero(t, got)
	_, err = ConsumedMemory(map[string]string{"memory": "much"})
	require.ErrorContains(t, err, `reading the allocated memory "much"`)
}
