package sampling

import (
	"bytes"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	simgpu "github.com/prism-gpu/prism/test/simgpu/model"
)

// dashboard12239 lists the metrics that the panels of Grafana's dashboard 12239 query, each for the GPUs of its variable gpu. The metric of
// the tensor cores needs GPM.
var dashboard12239 = []string{
	"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED",
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
}

// TestDCGMPage_SampledGPU_Dashboard12239AndFirstNVLink: the page for dashboards of dcgm-exporter shows the driver's values of a working
// GPU.
func TestDCGMPage_SampledGPU_Dashboard12239AndFirstNVLink(t *testing.T) {
	t.Parallel()
	for board, panels := range map[string]int{"h100-80": len(dashboard12239), "a100-40": len(dashboard12239) - 1, "t4": len(dashboard12239) - 1} {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			c := samplingOn(t, board)
			identity := c.must("open").Identity
			c.load("--memory", "1Gi", "--sm", "60")
			if board != "t4" {
				script := simgpu.Script{Steps: []simgpu.Step{{Values: map[simgpu.Quantity]float64{simgpu.QuantityNVLinkTx: 1200}}}}
				require.NoError(t, c.node.Model.SetLoad(c.node.Model.Identities()[0].UUID, script))
			}
			before := sampled(c.must("round"))
			c.pass(10 * time.Second)
			g := &metrics.GPU{Identity: identity, Interval: 10 * time.Second, Up: true, Values: sampled(c.must("round"))}
			g.Values.SetRates(&before, 10*time.Second)
			page := metrics.Join(&metrics.Snapshot{GPUs: []*metrics.GPU{g}}, nil, metrics.Exporter{}).AppendDCGM(nil, nil)
			parser := expfmt.NewTextParser(model.UTF8Validation)
			families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
			require.NoError(t, err)
			for i, name := range dashboard12239 {
				_, has := families[name]
				assert.Equal(t, i < panels, has, name)
			}
			first := families["DCGM_FI_DEV_NVLINK_BANDWIDTH_L0"]
			if board == "t4" {
				assert.Nil(t, first)
				return
			}
			all := families["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"].GetMetric()[0].GetCounter().GetValue()
			require.NotNil(t, first)
			one := first.GetMetric()[0].GetCounter().GetValue()
			assert.Positive(t, one)
			assert.Less(t, one, all, "it is one of several")
		})
	}
}

// sampled returns the values of a round.
func sampled(r read) (values metrics.Values) {
	for field, value := range r.Values {
		values.Set(field, value)
	}
	return values
}
