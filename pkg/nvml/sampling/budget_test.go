package sampling

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/metrics"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// TestRound_RotatedValues_FollowTheGPU: a value that is read by rotation changes after the GPU's, whatever else a round has to ask for, and
// no round takes more calls than it may.
func TestRound_RotatedValues_FollowTheGPU(t *testing.T) {
	t.Parallel()
	const places = 7
	for name, devices := range map[string]int{"whole": 0, "one MIG device": 1, "seven MIG devices": places} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var prepare [][]string
			bound := maxCalls
			if devices > 0 {
				created := strings.TrimSuffix(strings.Repeat("19,", devices), ",")
				prepare = [][]string{{"-i", "0", "-mig", "1"}, {"mig", "-cgi", created, "-C"}}
				bound += places*maxCallsPerPlace + devices*maxCallsPerMIG
			}
			c := samplingOn(t, "h100-80", prepare...)
			for range 3 {
				c.load("--memory", "64Mi", "--sm", "10")
			}
			c.must("open")
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

// rotatedLoad moves what is read by rotation to a level. The engines of a GPU in MIG mode have no utilization of the GPU.
func rotatedLoad(level float64, mig bool) model.Script {
	values := map[model.Quantity]float64{model.QuantitySMClock: 1000 + level, model.QuantityVideoClock: 1200 + level}
	if !mig {
		for _, engine := range []model.Quantity{model.QuantityEncoder, model.QuantityDecoder, model.QuantityJPEG, model.QuantityOFA} {
			values[engine] = level
		}
	}
	return model.Script{Steps: []model.Step{{Values: values}}}
}
