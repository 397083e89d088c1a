package sampling

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// failing is a library whose GPM samples return the codes of a test.
type failing struct {
	*bare
	answer nvml.Return
}

type failingSample struct {
	sample
	lib *failing
}

func (f *failing) GpmSampleAlloc() (nvml.GpmSample, nvml.Return) {
	return &failingSample{sample{f.bare}, f}, nvml.SUCCESS
}

func (s *failingSample) Get(nvml.Device) nvml.Return         { return s.lib.answer }
func (s *failingSample) MigGet(nvml.Device, int) nvml.Return { return s.lib.answer }

// TestSample_NoneTaken_NextIsBaseline: a mean since the last sample would cover all the time without samples.
func TestSample_NoneTaken_NextIsBaseline(t *testing.T) {
	t.Parallel()
	for _, target := range []int{wholeGPU, 5} {
		lib := &failing{bare: &bare{metrics: func(r *nvml.GpmMetricsGetType) {
			for i := range r.NumMetrics {
				r.Metrics[i].Value, r.Metrics[i].NvmlReturn = 50, uint32(nvml.SUCCESS)
			}
		}}, answer: nvml.SUCCESS}
		d := bareDriver(t, lib.bare, &bareGPU{})
		d.lib = lib
		sampled := func(fields metrics.FieldSet) bool {
			var values metrics.Values
			require.NoError(t, d.Sample(t.Context(), "GPU-0", target, fields, false, &values))
			return len(valuesOf(&values)) > 0
		}
		all, power := allFields(), metrics.NewFieldSet(metrics.FieldPowerUsage)
		assert.False(t, sampled(all))
		assert.True(t, sampled(all))

		lib.answer = nvml.ERROR_UNKNOWN
		assert.False(t, sampled(all), "no error, and none taken")
		lib.answer = nvml.SUCCESS
		assert.False(t, sampled(all))
		assert.True(t, sampled(all))

		assert.False(t, sampled(power), "no field of GPM is wanted")
		assert.False(t, sampled(all))
		assert.True(t, sampled(all))
	}
}
