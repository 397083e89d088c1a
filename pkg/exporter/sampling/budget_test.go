package sampling

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// TestRound_RotatedValues_FollowTheGPU: a value that is read by rotation follows the GPU's value, whatever else a round reads, and no round
// exceeds its limit of calls.
func TestRound_RotatedValues_FollowTheGPU(t *testing.T) {
	t.Parallel()
	for name, devices := range map[string]int{"whole": 0, "one MIG device": 1, "seven MIG devices": 7} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var prepare [][]string
			bound := maxCalls
			if devices > 0 {
				created := strings.TrimSuffix(strings.Repeat("19,", devices), ",")
				prepare = [][]string{{"-i", "0", "-mig", "1"}, {"mig", "-cgi", created, "-C"}}
				bound += devices * maxCallsPerMIG
			}
			c := samplingOn(t, "h100-80", prepare...)
			for range 3 {
				c.load("--memory", "64Mi", "--sm", "10")
			}
			c.must("open")
			c.must("round") // it also allocates buffers, and makes each unsupported call once
			for _, level := range []float64{25, 50, 75} {
				require.NoError(t, c.node.Model.SetLoad(c.node.Model.Identities()[0].UUID, rotatedLoad(level, devices > 0)))
				var r read
				for range rotated {
					c.pass(time.Second)
					before := c.calls()
					r = c.must("round")
					assert.LessOrEqual(t, c.calls()-before, bound)
				}
				assert.Len(t, r.MIGDevices, devices)
				assert.InDelta(t, (1000+level)*mega, r.Values[metrics.FieldClockGraphics], 1)
				assert.InDelta(t, (1200+level)*mega, r.Values[metrics.FieldClockVideo], 1)
				for _, field := range []metrics.Field{
					metrics.FieldUtilizationEncoder, metrics.FieldUtilizationDecoder, metrics.FieldUtilizationJPEG, metrics.FieldUtilizationOFA,
				} {
					if devices == 0 {
						assert.InDelta(t, level*percent, r.Values[field], 1e-9, metrics.Table[field].GPU)
					}
				}
			}
		})
	}
}

// rotatedLoad sets the values that are read by rotation to a level. In MIG mode, the GPU reports no utilization of its engines.
func rotatedLoad(level float64, mig bool) model.Script {
	values := map[model.Quantity]float64{model.QuantitySMClock: 1000 + level, model.QuantityVideoClock: 1200 + level}
	if !mig {
		for _, engine := range []model.Quantity{model.QuantityEncoder, model.QuantityDecoder, model.QuantityJPEG, model.QuantityOFA} {
			values[engine] = level
		}
	}
	return model.Script{Steps: []model.Step{{Values: values}}}
}
