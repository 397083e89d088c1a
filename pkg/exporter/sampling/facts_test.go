package sampling

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/nvml/library"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// TestRound_EachCallRefused_GPUSampled: if a board refuses any single call, the GPU keeps its identity and its other values. Unknown values
// are empty, not a default.
func TestRound_EachCallRefused_GPUSampled(t *testing.T) {
	t.Parallel()
	c := samplingOn(t, "h100-80")
	complete := c.must("open").Identity
	c.must("round")
	symbols := slices.Sorted(maps.Keys(c.node.Model.Calls.Of(c.command.Process.Pid).Counts))
	c.must("close")
	for _, symbol := range symbols {
		need := library.Need("")
		for _, fact := range library.Facts {
			if fact.Symbol == symbol {
				need = fact.Need
			}
		}
		for _, ret := range []model.Return{model.NotSupported, model.Unknown} {
			_, err := c.node.Model.Faults.Add(model.Fault{Effect: model.EffectError, Return: ret, GPU: model.AnyGPU, Call: symbol})
			require.NoError(t, err)
			open := c.ask("open")
			if need == library.Required || need == library.Decides && ret == model.Unknown {
				assert.NotEmpty(t, open.Err, "%s: %v", symbol, ret)
			} else {
				require.Empty(t, open.Err, "%s: %v", symbol, ret)
				r := c.must("round")
				assert.NotEmpty(t, r.Values)
				assert.Equal(t, complete.UUID, r.Identity.UUID)
				assert.Equal(t, complete.PCIBusID, r.Identity.PCIBusID)
				for what, values := range map[string][2]string{
					"nvmlDeviceGetMinorNumber": {complete.Device, r.Identity.Device}, "nvmlDeviceGetName": {complete.Name, r.Identity.Name},
					"nvmlDeviceGetBrand": {complete.Brand, r.Identity.Brand}, "nvmlDeviceGetSerial": {complete.Serial, r.Identity.Serial},
					"nvmlSystemGetCudaDriverVersion": {complete.CUDAVersion, r.Identity.CUDAVersion},
				} {
					want := values[0]
					if what == symbol {
						want = ""
					}
					assert.Equal(t, want, values[1], "%s without %s: %v", what, symbol, ret)
				}
			}
			c.node.Model.Faults.Clear()
			c.ask("close")
		}
	}
}

// TestRound_MIGModeWithoutAnswer_StaysAsItWas: if the MIG mode cannot be read for a moment, a GPU stays in MIG mode.
func TestRound_MIGModeWithoutAnswer_StaysAsItWas(t *testing.T) {
	t.Parallel()
	c := samplingOn(t, "h100-80", []string{"-i", "0", "-mig", "1"}, []string{"mig", "-i", "0", "-cgi", "9", "-C"})
	require.True(t, c.must("open").Identity.MIGMode)
	require.Len(t, c.must("round").MIGDevices, 1)
	_, err := c.node.Model.Faults.Add(model.Fault{Effect: model.EffectError, Return: model.Unknown, GPU: model.AnyGPU, Call: "nvmlDeviceGetMigMode"})
	require.NoError(t, err)
	r := c.must("round")
	assert.True(t, r.Identity.MIGMode)
	assert.Len(t, r.MIGDevices, 1)
}
